// What the program holds back. Its own kernels hold every SM, and braid's cannot begin: a copy that
// waits for them goes on waiting; `auto` carries the next ones by copy engines. Or its default
// stream is held while braid gets ready. Each TEST is its own process.
#include <cstdlib>
#include <cstring>

#include "cuda/bounded_wait.h"
#include "multipath/copy_engine/station.h"
#include "multipath/lane.h"
#include "multipath/ticket.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kSize = 16 << 20;
constexpr double kBusyFromUs = 600'000;
constexpr double kBusyToUs = 5'000'000;

class BlockedTest : public test::ServerTest {
 protected:
  void SetUp() override {
    setenv("BRAID_FAULTS",
           R"({"busy": [{"gpu": 0, "from_us": 600000, "to_us": 5000000},
                        {"gpu": 1, "from_us": 600000, "to_us": 5000000},
                        {"gpu": 2, "from_us": 600000, "to_us": 5000000},
                        {"gpu": 3, "from_us": 600000, "to_us": 5000000}]})",
           1);
    ServerTest::SetUp();
    Options options = every_size();
    options.relays.kind = RelayChoice::Kind::kList;
    options.relays.gpus = {1, 2, 3};
    options.hardware_queues = kStreamsPerContext + copy_engine::kStreamsPerContext;
    engine_ = open_engine(options);
    filler_ = std::make_unique<HostBuffer>(driver(), kSize);
    sink_ = std::make_unique<DeviceBuffer>(driver(), kSize);
    stream_ = new_stream();
    begin_ = new_event();
    end_ = new_event();
    MUST(driver(), cuEventRecord(begin_, stream_));
  }

  double now_us() {
    MUST(driver(), cuEventRecord(end_, stream_));
    synchronize(stream_);
    return elapsed_us(begin_, end_);
  }
  // Frees nothing: that would wait for the kernels.
  void pass_time_until(double until_us) {
    while (now_us() < until_us)
      MUST(driver(), cuMemcpyHtoDAsync(sink_->at(), filler_->data(), kSize, stream_));
  }
  Outcome send(HostBuffer& host, const DeviceBuffer& device, CUstream stream) {
    return engine_->submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream});
  }
  bool has_arrived(HostBuffer& host, const DeviceBuffer& device) {
    MUST(driver(), cuMemcpyDtoHAsync(filler_->data(), device.at(), kSize, stream_));
    synchronize(stream_);
    return std::memcmp(host.data(), filler_->data(), kSize) == 0;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HostBuffer> filler_;
  std::unique_ptr<DeviceBuffer> sink_;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
};

TEST_F(BlockedTest, CopyEnginesCarryWhatComesAfterKernelsThatCannotBegin) {
  HostBuffer first(driver(), kSize), second(driver(), kSize), third(driver(), kSize);
  first.fill_random(31);
  second.fill_random(32);
  third.fill_random(33);
  DeviceBuffer to_first(driver(), kSize), to_second(driver(), kSize), to_third(driver(), kSize);
  const CUstream waits = new_stream(), waits_too = new_stream(), goes = new_stream();
  pass_time_until(650000);
  EXPECT_EQ(send(first, to_first, waits).mover, Mover::kKernel);
  pass_time_until(800000);
  EXPECT_EQ(send(second, to_second, waits_too).mover, Mover::kKernel) << "nothing is certain yet";
  pass_time_until(950000);
  const CUevent sent = new_event(), arrived = new_event();
  MUST(driver(), cuEventRecord(sent, goes));
  const Outcome outcome = send(third, to_third, goes);
  MUST(driver(), cuEventRecord(arrived, goes));
  synchronize(goes);
  if (elapsed_us(begin_, sent) > kBusyToUs / 2)
    GTEST_SKIP() << "the process stood still, and the emulated server went on without it";
  EXPECT_EQ(outcome.verdict, Verdict::kAccelerated);
  EXPECT_EQ(outcome.mover, Mover::kCopyEngine);
  EXPECT_LT(elapsed_us(sent, arrived), 100000) << "it waited for the kernels' turn";
  EXPECT_TRUE(has_arrived(third, to_third));

  synchronize(waits);
  synchronize(waits_too);
  EXPECT_GT(now_us(), kBusyToUs - kBusyFromUs) << "the GPUs were not busy";
  EXPECT_TRUE(has_arrived(first, to_first));
  EXPECT_TRUE(has_arrived(second, to_second));
}

// The stream is held back, not the kernels, and the GPUs are not busy yet.
TEST_F(BlockedTest, ATransferWhoseTurnHasNotComeIsNoSign) {
  HostBuffer first(driver(), kSize), second(driver(), kSize), word(driver(), 4);
  std::memset(word.data(), 0, 4);
  DeviceBuffer to_first(driver(), kSize), to_second(driver(), kSize);
  const CUstream held = new_stream(), next = new_stream();
  MUST(driver(), cuStreamWaitValue32(held, reinterpret_cast<CUdeviceptr>(word.data()), 1,
                                     CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_EQ(send(first, to_first, held).mover, Mover::kKernel);
  for (const double at_us : {110000, 250000, 400000}) {
    pass_time_until(at_us);
    EXPECT_EQ(send(second, to_second, next).mover, Mover::kKernel);
  }
  const uint32_t open = 1;
  std::memcpy(word.data(), &open, sizeof(open));
  synchronize(held);
}

class HeldDefaultStreamTest : public test::ServerTest {
 protected:
  // Fails rather than waits for ever.
  bool ends(CUstream stream) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    return cuda::wait_until_idle(driver(), stream, deadline) == CUDA_SUCCESS;
  }
};

// What braid cleared for itself is not cleared again when the program's default stream goes on.
TEST_F(HeldDefaultStreamTest, OpeningMeanwhileSpoilsNothing) {
  constexpr uint64_t kSmall = 256 << 10;
  HostBuffer host(driver(), kSmall), landing(driver(), kSmall), word(driver(), 4);
  std::memset(word.data(), 0, 4);
  DeviceBuffer device(driver(), kSmall);
  MUST(driver(), cuStreamWaitValue32(CU_STREAM_LEGACY, reinterpret_cast<CUdeviceptr>(word.data()),
                                     1, CU_STREAM_WAIT_VALUE_GEQ));
  Options options = every_size();
  options.relays.kind = RelayChoice::Kind::kList;
  options.relays.gpus = {1};
  auto engine = open_engine(options);
  const CUstream stream = new_stream();
  // Each ticket is used before and after.
  for (size_t round = 0; round < 2 * kTickets; ++round) {
    if (round == kTickets) {
      const uint32_t open = 1;
      std::memcpy(word.data(), &open, sizeof(open));
      ASSERT_TRUE(ends(CU_STREAM_LEGACY));
    }
    host.fill_random(60 + round);
    ASSERT_EQ(engine->submit({Direction::kHostToDevice, host.data(), device.at(), kSmall, stream}),
              Verdict::kAccelerated);
    MUST(driver(), cuMemcpyDtoHAsync(landing.data(), device.at(), kSmall, stream));
    ASSERT_TRUE(ends(stream)) << "transfer " << round;
    ASSERT_EQ(std::memcmp(host.data(), landing.data(), kSmall), 0) << "transfer " << round;
  }
}

}  // namespace
}  // namespace braid::multipath
