// Processes of a host that use braid know of each other: here, two engines with a table.
#include "multipath/peer_processes.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "multipath/process_table.h"
#include "support/gate.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::Gate;
using test::HostBuffer;

constexpr uint64_t kSize = 64 << 20;

// A time that both engines share, and that stands still unless told to go on.
class CommonClock final : public Clock {
 public:
  uint64_t now_ns() override { return now; }
  bool is_common() const override { return true; }
  uint64_t now = 1'000'000'000'000;
};

class PeerProcessesTest : public test::ServerTest {
 protected:
  void SetUp() override {
    gpus_needed = 3;
    ServerTest::SetUp();
    altered_ = driver();
    altered_.clock = &clock_;
    host_ = std::make_unique<HostBuffer>(driver(), kSize);
    for (int gpu = 0; gpu < 2; ++gpu) {
      use_gpu(gpu);
      devices_[gpu] = std::make_unique<DeviceBuffer>(driver(), kSize);
      MUST(driver(), cuStreamCreate(&streams_[gpu], CU_STREAM_NON_BLOCKING));
    }
    use_gpu(0);
  }
  ~PeerProcessesTest() override { shm_unlink(table_.c_str()); }

  std::unique_ptr<Engine> open(const std::string& table) {
    Options options = every_size();
    options.relays = {RelayChoice::Kind::kList, {0, 1, 2}};
    options.process_table = table;
    auto opened = Engine::open(altered_, options);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return opened.ok() ? std::move(opened).value() : nullptr;
  }
  Outcome copy_to(Engine& engine, int gpu) {
    use_gpu(gpu);
    const Outcome outcome = engine.submit(
        {Direction::kHostToDevice, host_->data(), devices_[gpu]->at(), kSize, streams_[gpu]});
    use_gpu(0);
    return outcome;
  }
  bool relays_through_gpu_1(Engine& engine) { return (copy_to(engine, 0).via & 0b10) != 0; }
  void end_copies() {
    for (const CUstream stream : streams_) synchronize(stream);
  }

  CommonClock clock_;
  cuda::Driver altered_;
  std::unique_ptr<HostBuffer> host_;
  std::array<std::unique_ptr<DeviceBuffer>, 2> devices_;
  std::array<CUstream, 2> streams_{};
  const std::string table_ = "/braid-test-" + std::to_string(getpid());
};

TEST_F(PeerProcessesTest, LinksThatAnotherProcessUsesAreLeftToIt) {
  const auto one = open(table_), other = open(table_);
  EXPECT_TRUE(relays_through_gpu_1(*one));
  end_copies();
  clock_.now += 1'000'000'000;
  copy_to(*other, 1);
  EXPECT_TRUE(relays_through_gpu_1(*one)) << "they meet for the first time";
  EXPECT_FALSE(relays_through_gpu_1(*one)) << "GPU 1 copies for itself";
  end_copies();
  clock_.now += 1'000'000'000;
  EXPECT_FALSE(relays_through_gpu_1(*one)) << "and may do so again";
  end_copies();
  clock_.now += 3'000'000'000;
  EXPECT_TRUE(relays_through_gpu_1(*one));
  end_copies();
}

TEST_F(PeerProcessesTest, WithoutATableNobodyIsKnown) {
  const auto one = open(""), other = open("");
  copy_to(*other, 1);
  for (int times = 0; times < 2; ++times) EXPECT_TRUE(relays_through_gpu_1(*one));
  end_copies();
}

TEST_F(PeerProcessesTest, ATableThatCannotBeHadIsSaidAndDoneWithout) {
  const auto engine = open("/no/such/table");
  ASSERT_EQ(engine->problems().size(), 1u);
  EXPECT_NE(engine->problems()[0].find("/no/such/table"), std::string::npos);
  EXPECT_TRUE(relays_through_gpu_1(*engine));
  end_copies();
}

// A GPU without room does not relay. To end its context the driver may wait for streams that the
// program holds: no other process waits for that.
struct EndsOfContexts {
  static inline EndsOfContexts* self = nullptr;
  const std::string table;
  decltype(cuda::Driver::cuCtxDestroy) destroy;
  int ended = 0;
  int locked = 0;  // while the lock for opening relays was taken

  static CUresult no_room(size_t* free_bytes, size_t* total_bytes) {
    *free_bytes = 0;
    *total_bytes = 1;
    return CUDA_SUCCESS;
  }
  static CUresult end(CUcontext context) {
    ++self->ended;
    auto opened = ProcessTable::open(self->table);
    if (!opened.ok() || !opened.value()->lock_opening(std::chrono::milliseconds(100)))
      ++self->locked;
    else
      opened.value()->unlock_opening();
    return self->destroy(context);
  }
};

TEST_F(PeerProcessesTest, ARelayThatFailsEndsWithoutTheLockOfOthers) {
  EndsOfContexts ends{.table = table_, .destroy = driver().cuCtxDestroy};
  EndsOfContexts::self = &ends;
  altered_.cuMemGetInfo = EndsOfContexts::no_room;
  altered_.cuCtxDestroy = EndsOfContexts::end;
  Options options = every_size();
  options.relays = {RelayChoice::Kind::kList, {0, 1, 2}};
  options.process_table = table_;
  EXPECT_FALSE(Engine::open(altered_, options).ok()) << "no GPU has room";
  EXPECT_GT(ends.ended, 0);
  EXPECT_EQ(ends.locked, 0);
}

TEST_F(PeerProcessesTest, SwitchedOffCopiesAreNative) {
  const auto engine = open(table_);
  engine->row().is_off = 1;
  EXPECT_EQ(copy_to(*engine, 0), Verdict::kSwitchedOff);
  engine->row().is_off = 0;
  EXPECT_EQ(copy_to(*engine, 0), Verdict::kAccelerated);
  end_copies();
}

TEST_F(PeerProcessesTest, SaysWhatWaitsForBraid) {
  const auto engine = open(table_);
  EXPECT_EQ(engine->describe_waits(), "");
  Gate gate(driver());
  gate.hold(streams_[0]);
  ASSERT_EQ(copy_to(*engine, 0), Verdict::kAccelerated);
  const std::string waits = engine->describe_waits();
  EXPECT_NE(waits.find("GPU 0 h2d 67108864 bytes by copy_engine"), std::string::npos) << waits;
  EXPECT_NE(waits.find("it waits for the program"), std::string::npos) << waits;
  gate.open();
  end_copies();
  EXPECT_EQ(engine->describe_waits(), "");
}

}  // namespace
}  // namespace braid::multipath
