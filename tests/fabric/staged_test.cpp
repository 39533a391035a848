// GPU memory over wires that cannot touch it: what must hold while the driver makes copies wait.
// The emulated driver has a context's lock as the measured one (docs/architecture.md, "The law");
// while a thread of the program's holds the owner's, no copy to its GPU begins.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>

#include "fabric/engine.h"
#include "fabric/wires.h"
#include "support/gate.h"
#include "support/lock_holder.h"

namespace braid::fabric {
namespace {

using braid::test::Gate;
using braid::test::LockHolder;
using test::some_bytes;

constexpr int kLooks = 3000;  // long enough for all that does not wait for the driver

const test::WireKind& kind_named(const std::string& name) {
  for (const test::WireKind& kind : test::wire_kinds())
    if (kind.name == name) return kind;
  throw std::runtime_error("no wire " + name);
}

class StagedTest : public braid::test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    wire_ = kind_named(wire_name_).make();
    writer_ = wire_->open(0);
    owner_ = wire_->open(1);
    peer_ = writer_->connect(owner_->address()).value();
  }

  bool wait(const std::function<bool()>& until, int looks_max = 200'000) {
    for (int look = 0; look < looks_max; ++look) {
      if (until()) return true;
      poll(*writer_);
      poll(*owner_);
      wire_->pass_time();
    }
    return false;
  }
  void poll(Domain& domain) {
    Completion completions[16];
    const size_t count = domain.poll(completions);
    for (size_t i = 0; i < count; ++i) {
      if (completions[i].event == Event::kPosted)
        ended_[completions[i].context] = completions[i].ok;
      if (completions[i].event == Event::kImmediate) ++immediates_[completions[i].immediate];
    }
  }

  /// A write of all of `source`, with its context as the immediate.
  void post(uint32_t region, MutableBytes source, RemoteRange target, uint64_t offset,
            uint64_t context) {
    Write write;
    write.peer = peer_;
    write.region = region;
    write.source = source;
    write.target_address = target.base + offset;
    write.target_key = target.key;
    write.immediate = static_cast<uint32_t>(context);
    write.context = context;
    ASSERT_TRUE(wait([&] { return writer_->post_write(write); }));
  }

  /// From now on no call gets the lock of that context, until `release`.
  void hold() {
    use_gpu(held_gpu_);
    CUdeviceptr memory = 0;
    MUST(driver(), cuMemAlloc(&memory, 4096));
    gate_.emplace(driver());
    gate_->hold(new_stream());
    holder_.emplace(driver(), context(held_gpu_), memory);
  }
  void release() {
    gate_->open();
    holder_.reset();
  }

  std::string wire_name_ = "simulated_software_gpu_to_gpu";
  int held_gpu_ = 1;  // whose context makes the last copy: the owner's
  std::unique_ptr<test::Wire> wire_;
  std::unique_ptr<Domain> writer_, owner_;
  uint32_t peer_ = 0;
  std::map<uint64_t, bool> ended_;
  std::map<uint32_t, int> immediates_;
  std::optional<Gate> gate_;
  std::optional<LockHolder> holder_;
};

/// A write that has gone all the way sets everything up: rings, streams, pinned memory.
class WarmTest : public StagedTest {
 protected:
  static constexpr uint64_t kBytes = 4 << 20;
  void SetUp() override {
    StagedTest::SetUp();
    source_ = wire_->memory(0, kBytes);
    target_ = wire_->memory(1, kBytes);
    source_->put(bytes_);
    from_ = writer_->add_region(source_->bytes(), Access::kLocal).value();
    into_ = owner_->add_region(target_->bytes(), Access::kRemoteWrite).value();
    range_ = owner_->remote_range(into_);
    post(from_, source_->bytes().first(1), range_, 0, 1);
    ASSERT_TRUE(wait([&] { return ended_.count(1) == 1 && immediates_[1] == 1; }));
  }

  const std::vector<std::byte> bytes_ = some_bytes(kBytes, 1);
  std::unique_ptr<test::Memory> source_, target_;
  uint32_t from_ = 0, into_ = 0;
  RemoteRange range_;
};

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
  wait([] { return false; }, kLooks);
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
  wait([] { return false; }, kLooks);
  EXPECT_EQ(ended_.size(), 1u);
  release();
  ASSERT_TRUE(wait([&] { return ended_.size() == 1 + kMany / kPart; }));
  for (const auto& [context, ok] : ended_) EXPECT_TRUE(ok) << context;
  EXPECT_TRUE(target->get() == bytes);
}

TEST_F(WarmTest, ARegionThatWasRemovedIsDrainedOnceItsCopiesHaveEnded) {
  hold();
  post(from_, source_->bytes(), range_, 0, 2);
  wait([] { return false; }, kLooks);
  ASSERT_TRUE(owner_->removal_fences(into_));
  owner_->remove_region(into_);
  EXPECT_EQ(owner_->drain(into_), Drain::kEnding);
  release();
  ASSERT_TRUE(wait([&] { return owner_->drain(into_) == Drain::kOver; }));
  target_->put(std::vector<std::byte>(kBytes));
  wait([] { return false; }, kLooks);
  EXPECT_EQ(target_->get(), std::vector<std::byte>(kBytes));
}

/// Half of the write lies outside: it fails once the other half has ended, and is no immediate.
TEST_P(HeldDriverTest, AWriteOfSeveralPiecesFailsAsOne) {
  post(from_, source_->bytes(), range_, kBytes / 2, 2);
  ASSERT_TRUE(wait([&] { return ended_.count(2) == 1; }));
  EXPECT_FALSE(ended_[2]);
  wait([] { return false; }, kLooks);
  EXPECT_EQ(immediates_[2], 0);
  post(from_, source_->bytes(), range_, 0, 3);
  ASSERT_TRUE(wait([&] { return ended_.count(3) == 1; }));
  EXPECT_TRUE(ended_[3]) << "the connection goes on";
  EXPECT_EQ(target_->get(), bytes_);
}

/// Without the peer's answer, on a wire that does not fence.
TEST_F(StagedTest, AGrantOfGpuMemoryIsFencedAlthoughItsWriterIsSilent) {
  const auto open = [&](int side, uint64_t number) {
    EngineOptions options;
    options.engine = number;
    std::vector<std::unique_ptr<Domain>> rails;
    rails.push_back(wire_->open(side));
    return Engine::open(std::move(rails), options).value();
  };
  const auto owner = open(1, 101), writer = open(0, 102);
  const auto in = [&](double seconds) {
    return wire_->now_ns() + static_cast<uint64_t>(seconds * 1e9);
  };
  const uint64_t peer = owner->connect(writer->address(), in(20)).value();
  const auto step_until = [&](const std::function<bool()>& until, bool with_writer) {
    for (int i = 0; i < 200'000 && !until(); ++i) {
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
