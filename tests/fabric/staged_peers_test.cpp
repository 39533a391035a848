// GPU memory over wires that cannot touch it: peers that leave, come twice, or lose a connection.
#include <gtest/gtest.h>

#include "fabric/engine.h"
#include "fabric/staged/limits.h"
#include "fabric/staged_fixture.h"

namespace braid::fabric {
namespace {

using test::some_bytes;

class StagedPeersTest : public WarmTest {
 protected:
  /// Whether a write of all bytes ends well, is counted once, and is there.
  void expect_a_write_lands(uint64_t context) {
    target_->put(std::vector<std::byte>(kBytes));
    post(from_, source_->bytes(), range_, 0, context);
    ASSERT_TRUE(wait([&] { return ended_.contains(context) && immediates_[context] > 0; }));
    EXPECT_TRUE(ended_[context]);
    EXPECT_EQ(immediates_[context], 1);
    EXPECT_TRUE(target_->get() == bytes_);
  }
};

class FromGpuToHostTest : public WarmTest {
 protected:
  void SetUp() override {
    wire_name_ = "simulated_software_gpu_to_host";
    held_gpu_ = 0;  // the writer's
    WarmTest::SetUp();
  }
};

TEST_F(FromGpuToHostTest, AWriteWhoseCopyIsUnderWayFailsWhenItsPeerIsDisconnected) {
  hold();
  post(from_, source_->bytes().first(1000), range_, 0, 4);
  post(from_, source_->bytes(), range_, 0, 2);
  std::vector<std::byte> host(10);
  const uint32_t from_host = writer_->add_region(host, Access::kLocal).value();
  post(from_host, host, {uint64_t{1} << 63, 1}, 0, 5);  // behind the others, into a GPU
  wait([] { return false; }, 100);
  writer_->disconnect(peer_);
  wait([] { return false; }, 100);
  EXPECT_FALSE(ended_.contains(2) || ended_.contains(4)) << "copies still read the sources";
  release();
  ASSERT_TRUE(wait([&] { return ended_.size() == 4; }));
  EXPECT_TRUE(!ended_[2] && !ended_[4] && !ended_[5]);
  look_on();
  EXPECT_EQ(immediates_[2] + immediates_[4], 0);
  post(from_, source_->bytes(), range_, 0, 3);
  ASSERT_TRUE(wait([&] { return ended_.contains(3); }));
  EXPECT_FALSE(ended_[3]) << "the peer is gone";
}

/// As when a peer was given up, has come back, and its first connection is cleared away.
TEST_F(StagedPeersTest, AnEarlierConnectionEndsNothingOfALaterOne) {
  const uint32_t earlier = owner_->connect(writer_->address()).value();
  (void)owner_->connect(writer_->address()).value();
  expect_a_write_lands(2);
  owner_->disconnect(earlier);
  expect_a_write_lands(3);
}

TEST_F(StagedPeersTest, TwoConnectionsToOnePlaceDoNotDisturbEachOther) {
  const uint32_t first = peer_;
  const uint32_t second = writer_->connect(owner_->address()).value();
  const uint32_t third = writer_->connect(owner_->address()).value();
  uint64_t context = 10;
  for (int turn = 0; turn < 3; ++turn)
    for (const uint32_t peer : {second, third, first}) {
      peer_ = peer;
      post(from_, source_->bytes().first(100), range_, 0, context++);
    }
  ASSERT_TRUE(wait([&] { return ended_.size() == 10; }));
  for (const auto& [write, ok] : ended_) EXPECT_TRUE(ok) << write;
  writer_->disconnect(second);
  peer_ = first;
  expect_a_write_lands(30);
}

/// The owner has copied, and its connection breaks before it has said so.
TEST_F(StagedPeersTest, AnAnswerThatABrokenRailGivesBackIsSaidAgain) {
  (void)owner_->connect(writer_->address()).value();
  hold();
  post(from_, source_->bytes(), range_, 0, 2);
  look_on();
  ASSERT_TRUE(wire_->break_rail(1, 0));
  release();
  look_on();
  EXPECT_FALSE(ended_.contains(2));
  wire_->mend_rail(1, 0);
  ASSERT_TRUE(wait([&] { return ended_.contains(2); }));
  EXPECT_TRUE(ended_[2]);
  EXPECT_EQ(immediates_[2], 1);
  EXPECT_TRUE(target_->get() == bytes_);
  for (uint64_t context = 3; context < 9; ++context)
    expect_a_write_lands(context);  // more than a ring holds: no part of it is lost
}

TEST_F(StagedPeersTest, AWriterWhomTheOwnerDisconnectsIsToldSo) {
  const uint32_t visitor = owner_->connect(writer_->address()).value();
  hold();
  post(from_, source_->bytes(), range_, 0, 2);
  look_on();
  owner_->disconnect(visitor);
  ASSERT_TRUE(wait([&] { return ended_.contains(2); })) << "it waits for ever";
  EXPECT_FALSE(ended_[2]);
  release();
  expect_a_write_lands(3);
}

/// As processes that end: nothing is said, and the owner clears away what it knew of them.
TEST_F(StagedPeersTest, MoreWritersComeAndGoThanThereAreRings) {
  for (uint64_t context = 2; context < 2 + staged::kRingsMax + 6; ++context) {
    const uint32_t visitor = owner_->connect(writer_->address()).value();
    from_ = writer_->add_region(source_->bytes(), Access::kLocal).value();
    post(from_, source_->bytes().first(1000), range_, 0, context);
    ASSERT_TRUE(wait([&] { return ended_.contains(context); }));
    ASSERT_TRUE(ended_[context]) << "of writer " << context;
    writer_.reset();
    owner_->disconnect(visitor);
    wait([] { return false; }, 20);
    writer_ = wire_->open(0);
    peer_ = writer_->connect(owner_->address()).value();
  }
}

/// A process that has written to as many peers as there are rings is later written to by others.
TEST_F(StagedPeersTest, RingsOfOneRoleServeTheOtherOnceAllAreTaken) {
  std::vector<uint32_t> writers{peer_}, visitors{owner_->connect(writer_->address()).value()};
  while (writers.size() < staged::kRingsMax) {
    visitors.push_back(owner_->connect(writer_->address()).value());
    writers.push_back(peer_ = writer_->connect(owner_->address()).value());
    post(from_, source_->bytes().first(100), range_, 0, writers.size());
    ASSERT_TRUE(wait([&] { return ended_.contains(writers.size()); }));
    ASSERT_TRUE(ended_[writers.size()]) << "of writer " << writers.size();
  }
  for (const uint32_t writer : writers) writer_->disconnect(writer);
  for (const uint32_t visitor : visitors) owner_->disconnect(visitor);
  wait([] { return false; }, 1000);
  (void)writer_->connect(owner_->address()).value();
  peer_ = owner_->connect(writer_->address()).value();
  std::swap(writer_, owner_);
  std::swap(source_, target_);
  from_ = writer_->add_region(source_->bytes(), Access::kLocal).value();
  into_ = owner_->add_region(target_->bytes(), Access::kRemoteWrite).value();
  range_ = owner_->remote_range(into_);
  source_->put(bytes_);
  expect_a_write_lands(1000);
}

class StagedEnginesTest : public StagedTest {
 protected:
  void SetUp() override {
    StagedTest::SetUp();
    engines_[0] = open_engine(0, 102);
    engines_[1] = open_engine(1, 101);
    to_owner_ = engines_[0]->connect(owner().address(), in(20)).value();
    ASSERT_TRUE(step_until(
        [&] { return writer().peer_state(to_owner_).value() == PeerState::kConnected; }));
    ASSERT_TRUE(step_until([&] { return owner().find_peer(102).has_value(); }));
    to_writer_ = *owner().find_peer(102);
    ASSERT_EQ(owner().engine_of(to_writer_), 102u);
  }
  Engine& writer() { return *engines_[0]; }
  Engine& owner() { return *engines_[1]; }
  uint64_t in(double seconds) { return wire_->now_ns() + static_cast<uint64_t>(seconds * 1e9); }
  bool step_until(const std::function<bool()>& until) {
    for (test::Patience patience(200'000); !patience.is_over();) {
      if (until()) return true;
      for (const auto& engine : engines_)
        if (engine != nullptr) engine->step(wire_->now_ns());
      wire_->pass_time();
    }
    return false;
  }
  std::unique_ptr<Engine> engines_[2];
  uint64_t to_owner_ = 0, to_writer_ = 0;
};

/// Over a wire where closing a region does not fence, as over tcp and shm.
TEST_F(StagedEnginesTest, AllMemoryOfAWriterThatHasEndedIsFencedOnceItIsDisconnected) {
  const auto gpu = wire_->memory(1, 1000);
  std::vector<std::byte> host(1000);
  std::vector<uint64_t> grants;
  for (const MutableBytes memory : {gpu->bytes(), MutableBytes(host)})
    grants.push_back(
        owner().grant(owner().add_region(memory).value(), to_writer_, 0, 1000).value().grant);
  engines_[0].reset();
  ASSERT_TRUE(owner().disconnect(to_writer_).ok());
  EXPECT_TRUE(step_until([&] {
    return owner().fence(grants[0]).value() == Fence::kFenced &&
           owner().fence(grants[1]).value() == Fence::kFenced;
  })) << "of the GPU "
      << static_cast<int>(owner().fence(grants[0]).value()) << ", of the host "
      << static_cast<int>(owner().fence(grants[1]).value());
}

/// Theirs are longer than those of the rings.
TEST_F(StagedEnginesTest, TheLargestMessageOfAnEngineArrives) {
  const auto payload = some_bytes(kPayloadBytesMax, 4);
  ASSERT_TRUE(writer().send(to_owner_, payload).ok());
  std::optional<Received> received;
  ASSERT_TRUE(step_until([&] { return (received = owner().receive()).has_value(); }));
  EXPECT_EQ(received->payload, payload);
}

/// Of messages about memory of GPUs. Before version 4 addresses did not say.
TEST_F(StagedEnginesTest, APeerWithoutACommonVersionIsRefusedAtOnce) {
  constexpr size_t kVersionAt = 6, kEarlierAt = 7;
  Address later = owner().address();
  later.engine = 103;
  std::vector<std::byte>& name = later.rails[0].name;
  const auto refusal = [&](const std::string& theirs) {
    return "the peer stages memory of GPUs by " + theirs +
           ", and this engine by versions 5 to 6. Use the same version of braid on both sides";
  };
  const auto said = [&] { return writer().connect(later, in(20)).status().message(); };
  name[kVersionAt] = std::byte{7};
  name[kEarlierAt] = std::byte{0};
  EXPECT_EQ(said(), refusal("version 7"));
  name[kVersionAt] = std::byte{8};
  name[kEarlierAt] = std::byte{1};
  EXPECT_EQ(said(), refusal("versions 7 to 8"));
  name[kVersionAt] = std::byte{3};
  name[kEarlierAt] = std::byte{9};
  EXPECT_FALSE(writer().connect(later, in(20)).ok()) << "versions 250 to 3 are none";
  name.erase(name.begin(), name.begin() + kVersionAt + 3);
  EXPECT_EQ(said(), refusal("version 3 or older"));
}

/// The domains of the version before and of the next one are spoken to in theirs and in this one,
/// and are written to.
TEST_F(StagedTest, TheVersionsBesideThisOneAreSpokenTo) {
  const auto source = wire_->memory(0, 1000), target = wire_->memory(1, 1000);
  const uint32_t from = writer_->add_region(source->bytes(), Access::kLocal).value();
  const uint32_t into = owner_->add_region(target->bytes(), Access::kRemoteWrite).value();
  const auto with_version = [](Bytes address, uint8_t newest) {
    std::vector<std::byte> changed(address.begin(), address.end());
    changed[6] = std::byte{newest};
    changed[7] = std::byte{newest == 5 ? uint8_t{0} : uint8_t{1}};
    return changed;
  };
  for (const uint8_t newest : {uint8_t{5}, uint8_t{7}}) {
    const auto bytes = some_bytes(1000, newest);
    source->put(bytes);
    const uint32_t back = owner_->connect(with_version(writer_->address(), newest)).value();
    peer_ = writer_->connect(with_version(owner_->address(), newest)).value();
    post(from, source->bytes(), owner_->remote_range(into), 0, newest);
    ASSERT_TRUE(wait([&] { return ended_.count(newest) == 1 && immediates_[newest] == 1; }));
    EXPECT_TRUE(ended_[newest]);
    EXPECT_EQ(target->get(), bytes);
    writer_->disconnect(peer_);
    owner_->disconnect(back);
  }
}

}  // namespace
}  // namespace braid::fabric
