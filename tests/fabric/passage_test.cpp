// Host memory that copies of two contexts pass through, while the driver holds up the lane of the
// one that has pinned it: the other one's copies go on, and touch no memory that is being unpinned.
#include "fabric/gpu/passage.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "support/eventually.h"
#include "support/gate.h"
#include "support/lock_holder.h"
#include "support/server.h"

namespace braid::fabric::gpu {
namespace {

using braid::test::eventually;
constexpr uint64_t kBytes = 64 << 10;

/// The server's driver, which sees what happens to one range of host memory.
class Witness {
 public:
  Witness(const cuda::Driver& real, Bytes watched)
      : driver_(real), real_(real), from_(address_of(watched)), to_(from_ + watched.size()) {
    self_ = this;
    driver_.cuMemHostRegister = [](void* memory, size_t size_bytes, unsigned flags) {
      const CUresult result = self_->real_.cuMemHostRegister(memory, size_bytes, flags);
      if (self_->is_watched(reinterpret_cast<CUdeviceptr>(memory)) && result == CUDA_SUCCESS)
        ++self_->pins;
      return result;
    };
    driver_.cuMemHostUnregister = [](void* memory) {
      const bool is_it = self_->is_watched(reinterpret_cast<CUdeviceptr>(memory));
      if (is_it) self_->is_unpinning = true;
      const CUresult result = self_->real_.cuMemHostUnregister(memory);
      if (is_it) self_->is_unpinning = false;
      return result;
    };
    driver_.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
      const bool passes = self_->is_watched(to) || self_->is_watched(from);
      ++(passes ? self_->through : self_->beside);
      if (passes && self_->is_unpinning) ++self_->disturbed;
      return self_->real_.cuMemcpyAsync(to, from, bytes, stream);
    };
  }
  const cuda::Driver& driver() const { return driver_; }

  std::atomic<int> pins{0}, through{0}, beside{0}, disturbed{0};
  std::atomic<bool> is_unpinning{false};

 private:
  static CUdeviceptr address_of(Bytes bytes) { return reinterpret_cast<CUdeviceptr>(bytes.data()); }
  bool is_watched(CUdeviceptr address) const { return address >= from_ && address < to_; }

  static inline Witness* self_ = nullptr;
  cuda::Driver driver_;
  const cuda::Driver& real_;
  CUdeviceptr from_, to_;
};

class PassageTest : public braid::test::ServerTest {
 protected:
  struct Context {
    CUcontext handle = nullptr;
    CUdeviceptr memory = 0;
    std::shared_ptr<Lane> lane;
  };

  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    auto memory = HostMemory::open(kBytes);
    witness_.emplace(driver(), memory->bytes());
    passage_ = Passage(std::move(memory));
    for (int i = 0; i < 2; ++i) {
      MUST(driver(), create_context(&contexts_[i].handle, 0, i));
      MUST(driver(), cuMemAlloc(&contexts_[i].memory, kBytes));
      contexts_[i].lane = lane_of(witness_->driver(), contexts_[i].handle, i);
    }
  }
  void TearDown() override {
    if (IsSkipped()) return;
    passage_.give_back();
    for (Context& each : contexts_) {
      const auto end = each.lane->end();
      each.lane.reset();
      end->wait();
      MUST(driver(), cuCtxDestroy(each.handle));
    }
  }

  void begin(const Context& on, CopyKind kind) {
    passage_.pin(on.lane);
    Copy copy;
    copy.uses_bounce_buffer = is_beside_ = passage_.begin_copy();
    copy.tag = is_beside_ ? 1 : 0;
    ++under_way_;
    const auto host = reinterpret_cast<CUdeviceptr>(passage_.bytes().data());
    copy.to = kind == CopyKind::kToGpu ? on.memory : host;
    copy.from = kind == CopyKind::kToGpu ? host : on.memory;
    copy.size_bytes = kBytes;
    copy.ended = ended_;
    on.lane->copy(kind, std::move(copy));
  }
  bool end() {
    std::vector<Ended::Copy> ended;
    if (!eventually([&] { return ended_->take(ended); })) return false;
    for (const Ended::Copy& each : ended) {
      EXPECT_TRUE(each.ok);
      passage_.end_copy(each.tag != 0);
      --under_way_;
    }
    return under_way_ == 0;
  }
  /// There and back, with other bytes in between.
  void copy_through(const Context& on, uint64_t seed) {
    std::vector<std::byte> bytes(kBytes);
    for (uint64_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::byte>(seed * 31 + i % 251);
    std::copy(bytes.begin(), bytes.end(), passage_.bytes().begin());
    begin(on, CopyKind::kToGpu);
    ASSERT_TRUE(end()) << "it waits for the other context";
    std::fill(passage_.bytes().begin(), passage_.bytes().end(), std::byte{0});
    begin(on, CopyKind::kToHost);
    ASSERT_TRUE(end()) << "it waits for the other context";
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), passage_.bytes().begin()));
  }
  /// Until it goes out of scope the driver keeps the lock of the first context.
  struct Hold {
    explicit Hold(PassageTest& test) : gate(test.driver()) {
      MUST(test.driver(), cuCtxSetCurrent(test.contexts_[0].handle));
      CUdeviceptr other = 0;
      MUST(test.driver(), cuMemAlloc(&other, kBytes));
      gate.hold(test.new_stream());
      holder.emplace(test.driver(), test.contexts_[0].handle, other);
    }
    ~Hold() {
      gate.open();
      holder.reset();
    }
    braid::test::Gate gate;
    std::optional<braid::test::LockHolder> holder;
  };

  Context contexts_[2];
  Passage passage_;
  std::optional<Witness> witness_;
  const std::shared_ptr<Ended> ended_ = std::make_shared<Ended>();
  int under_way_ = 0;
  bool is_beside_ = false;  // of the latest copy
};

TEST_F(PassageTest, WhileOneContextIsHeldUpLeavingTheOthersCopiesGoBesideIt) {
  if (!is_emulated()) GTEST_SKIP() << "waived: what holds the lock is the emulated driver's";
  ASSERT_NO_FATAL_FAILURE(copy_through(contexts_[0], 1));
  ASSERT_EQ(witness_->beside, 0);
  {
    const Hold hold(*this);
    ASSERT_TRUE(passage_.leave(*contexts_[0].lane));
    ASSERT_TRUE(eventually([&] { return witness_->is_unpinning.load(); }));
    for (uint64_t seed = 2; seed < 6; ++seed)
      ASSERT_NO_FATAL_FAILURE(copy_through(contexts_[1], seed));
    EXPECT_TRUE(witness_->is_unpinning);
  }
  EXPECT_EQ(witness_->disturbed, 0) << "copies used memory that was being unpinned";
  EXPECT_TRUE(eventually([&] {
    copy_through(contexts_[1], 7);
    return witness_->pins == 2;
  })) << "it stays unpinned";
  const int beside = witness_->beside;
  ASSERT_NO_FATAL_FAILURE(copy_through(contexts_[1], 8));
  EXPECT_EQ(witness_->beside, beside) << "it is pinned, and copies do not pass through it";
}

/// The copies of another context that are under way there end first; later ones hold it up no more.
TEST_F(PassageTest, AContextLeavesOnceTheOthersCopiesUnderWayHaveEnded) {
  ASSERT_NO_FATAL_FAILURE(copy_through(contexts_[0], 1));
  begin(contexts_[1], CopyKind::kToGpu);
  EXPECT_FALSE(passage_.leave(*contexts_[0].lane));
  begin(contexts_[1], CopyKind::kToGpu);
  EXPECT_TRUE(is_beside_);
  ASSERT_TRUE(eventually([&] { return end(); }));
  EXPECT_TRUE(passage_.leave(*contexts_[0].lane));
}

TEST_F(PassageTest, AContextThatComesBackKeepsItsPin) {
  ASSERT_NO_FATAL_FAILURE(copy_through(contexts_[0], 1));
  begin(contexts_[1], CopyKind::kToGpu);
  EXPECT_FALSE(passage_.leave(*contexts_[0].lane));
  passage_.stay(*contexts_[0].lane);
  begin(contexts_[1], CopyKind::kToGpu);
  EXPECT_FALSE(is_beside_);
  ASSERT_TRUE(eventually([&] { return end(); }));
  EXPECT_EQ(witness_->pins, 1);
}

}  // namespace
}  // namespace braid::fabric::gpu
