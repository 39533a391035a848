// GPU memory over wires that cannot touch it: what must hold while the driver makes copies wait.
// The emulated driver has a context's lock as the measured one (docs/architecture.md, "The law");
// while a thread of the program's holds the owner's, no copy to its GPU begins.
#include <gtest/gtest.h>

#include "fabric/engine.h"
#include "fabric/staged_fixture.h"

namespace braid::fabric {
namespace {

using test::some_bytes;

/// On both ways to a GPU.
class HeldDriverTest : public WarmTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    wire_name_ = GetParam();
    if (wire_name_ == "local_gpu_to_shared") held_gpu_ = 0;  // the writer's
    WarmTest::SetUp();
  }
};

INSTANTIATE_TEST_SUITE_P(Wires, HeldDriverTest,
                         testing::Values("simulated_software_gpu_to_gpu", "local_gpu_to_shared"),
                         [](const auto& wire) { return std::string(wire.param); });

TEST_P(HeldDriverTest, ACopyThatHasNotEndedIsNoImmediateAndNoCompletion) {
  hold();
  post(from_, source_->bytes(), range_, 0, 2);
  look_on();
  EXPECT_FALSE(holder_->has_ended()) << "nobody held the lock";
  EXPECT_EQ(immediates_[2], 0);
  EXPECT_EQ(ended_.count(2), 0u);
  release();
  ASSERT_TRUE(wait([&] { return immediates_[2] == 1; }));
  EXPECT_EQ(target_->get(), bytes_);
  ASSERT_TRUE(wait([&] { return ended_.count(2) == 1; }));
  EXPECT_TRUE(ended_[2]);
}

TEST_P(HeldDriverTest, ADriverThatMakesCopiesWaitStopsNothingElse) {
  std::vector<std::byte> memory(100'000), source = some_bytes(memory.size(), 2);
  const uint32_t host_from = writer_->add_region(source, Access::kLocal).value();
  const uint32_t host_into = owner_->add_region(memory, Access::kRemoteWrite).value();
  hold();
  post(from_, source_->bytes(), range_, 0, 2);
  post(host_from, source, owner_->remote_range(host_into), 0, 3);
  ASSERT_TRUE(wait([&] { return ended_.count(3) == 1 && immediates_[3] == 1; }));
  EXPECT_EQ(memory, source);
  EXPECT_EQ(ended_.count(2), 0u);
  EXPECT_FALSE(holder_->has_ended()) << "nobody held the lock";
  release();
  ASSERT_TRUE(wait([&] { return ended_.count(2) == 1; }));
  EXPECT_EQ(target_->get(), bytes_);
}

/// More than a ring holds, while none of it can be copied on.
TEST_F(WarmTest, ASpanOfARingIsTakenAgainOnlyAfterItsCopy) {
  constexpr uint64_t kMany = 48 << 20, kPart = 512 << 10;
  const auto bytes = some_bytes(kMany, 3);
  const auto source = wire_->memory(0, kMany), target = wire_->memory(1, kMany);
  source->put(bytes);
  const uint32_t from = writer_->add_region(source->bytes(), Access::kLocal).value();
  const uint32_t into = owner_->add_region(target->bytes(), Access::kRemoteWrite).value();
  hold();
  for (uint64_t at = 0; at < kMany; at += kPart)
    post(from, source->bytes().subspan(at, kPart), owner_->remote_range(into), at,
         100 + at / kPart);
  look_on();
  EXPECT_EQ(ended_.size(), 1u);
  release();
  ASSERT_TRUE(wait([&] { return ended_.size() == 1 + kMany / kPart; }));
  for (const auto& [context, ok] : ended_) EXPECT_TRUE(ok) << context;
  EXPECT_TRUE(target->get() == bytes);
}

TEST_F(WarmTest, ARegionThatWasRemovedIsDrainedOnceItsCopiesHaveEnded) {
  hold();
  post(from_, source_->bytes(), range_, 0, 2);
  look_on();
  ASSERT_TRUE(owner_->removal_fences(into_));
  owner_->remove_region(into_);
  EXPECT_EQ(owner_->drain(into_), Drain::kEnding);
  release();
  ASSERT_TRUE(wait([&] { return owner_->drain(into_) == Drain::kOver; }));
  target_->put(std::vector<std::byte>(kBytes));
  look_on();
  EXPECT_EQ(target_->get(), std::vector<std::byte>(kBytes));
}

/// Half of the write lies outside, the last half or the first: it fails once the other half has
/// ended, and is no immediate.
TEST_P(HeldDriverTest, AWriteOfSeveralPiecesFailsAsOne) {
  uint64_t context = 2;
  for (const uint64_t offset : {kBytes / 2, uint64_t{0} - kBytes / 2}) {
    post(from_, source_->bytes(), range_, offset, context);
    ASSERT_TRUE(wait([&] { return ended_.count(context) == 1; }));
    EXPECT_FALSE(ended_[context]);
    look_on();
    EXPECT_EQ(immediates_[static_cast<uint32_t>(context++)], 0);
  }
  post(from_, source_->bytes(), range_, 0, context);
  ASSERT_TRUE(wait([&] { return ended_.count(context) == 1; }));
  EXPECT_TRUE(ended_[context]) << "the connection goes on";
  EXPECT_EQ(target_->get(), bytes_);
}

/// Without the peer's answer, on a wire that does not fence.
TEST_F(StagedTest, AGrantOfGpuMemoryIsFencedAlthoughItsWriterIsSilent) {
  const auto owner = open_engine(1, 101), writer = open_engine(0, 102);
  const auto in = [&](double seconds) {
    return wire_->now_ns() + static_cast<uint64_t>(seconds * 1e9);
  };
  const uint64_t peer = owner->connect(writer->address(), in(20)).value();
  const auto step_until = [&](const std::function<bool()>& until, bool with_writer) {
    for (test::Patience patience(200'000); !until() && !patience.is_over();) {
      owner->step(wire_->now_ns());
      if (with_writer) writer->step(wire_->now_ns());
      wire_->pass_time();
    }
    return until();
  };
  ASSERT_TRUE(
      step_until([&] { return owner->peer_state(peer).value() == PeerState::kConnected; }, true));
  const auto gpu = wire_->memory(1, 1000);
  std::vector<std::byte> host(1000);
  const auto granted = [&](MutableBytes memory) {
    return owner->grant(owner->add_region(memory).value(), peer, 0, 1000).value().grant;
  };
  const uint64_t of_gpu = granted(gpu->bytes()), of_host = granted(host);
  ASSERT_TRUE(owner->revoke(of_gpu, in(0.01)).ok());
  ASSERT_TRUE(owner->revoke(of_host, in(0.01)).ok());
  const auto fence = [&](uint64_t grant) { return owner->fence(grant).value(); };
  ASSERT_TRUE(step_until(
      [&] { return fence(of_gpu) != Fence::kRevoking && fence(of_host) != Fence::kRevoking; },
      false));
  EXPECT_EQ(fence(of_gpu), Fence::kFenced);
  EXPECT_EQ(fence(of_host), Fence::kQuarantined);
}

}  // namespace
}  // namespace braid::fabric
