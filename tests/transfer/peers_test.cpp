// What one peer can do to the others, and to the owner: nothing that its own limits do not bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "transfer/dialler.h"
#include "transfer/engine.h"
#include "transfer/pattern.h"
#include "transfer/rail_net.h"

namespace braid::transfer::test {
namespace {

namespace fs = std::filesystem;
using Side = RailNet::Side;

class TransferPeers : public testing::Test {
 protected:
  TransferPeers() : owner(net.add()) {
    fs::create_directories(root_);
    EXPECT_TRUE(owner.owned.exports.add("kv", root_.string(), kMayRead | kMayWrite).ok());
  }
  ~TransferPeers() override { fs::remove_all(root_); }

  /// A file of the pattern, as its owner numbers it.
  uint64_t make_file(const std::string& name, size_t size_bytes, uint64_t seed) {
    std::vector<std::byte> bytes(size_bytes);
    fill(bytes, seed);
    std::ofstream(root_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<ptrdiff_t>(size_bytes));
    uint64_t file = 0, its_bytes = 0;
    EXPECT_EQ(open_now(owner.owned.exports, "kv/" + name, kMayRead, file, its_bytes), Cause::kNone);
    return file;
  }

  RailNet net;
  Side& owner;
  const fs::path root_ = fs::path(testing::TempDir()) / ("braid-peers-" + std::to_string(getpid()));
};

/// A process with memory and a link to the owner, which asks for more than any engine would.
struct Reader {
  Reader(RailNet& net, Side& owner, size_t size_bytes)
      : memory(size_bytes),
        side(net.add()),
        buffer(net.add_buffer(side, memory, kNoRights)),
        link(net.connect(side, owner)) {}
  void read(uint64_t file, uint64_t position, MutableBytes into) {
    side.rail->post(link, {++pieces, Operation::kRead, buffer, into, position, file});
  }
  bool has_ended() const { return side.ended.size() == pieces; }

  std::vector<std::byte> memory;
  Side& side;
  uint64_t buffer;
  uint64_t link;
  uint64_t pieces = 0;
};

/// The owner has read parts of the file for it, which it does not take.
TEST_F(TransferPeers, AReaderThatStandsStillHoldsUpNoOther) {
  constexpr size_t kBytes = 16 << 20;
  const uint64_t file = make_file("model", kBytes, 1);
  Reader frozen(net, owner, kBytes), other(net, owner, kBytes);
  for (int i = 0; i < 4; ++i) frozen.read(file, 0, frozen.memory);
  net.run(1'000);
  net.pause(frozen.side);
  net.run(50'000);
  other.read(file, 0, other.memory);
  ASSERT_TRUE(net.run(500'000, [&] { return other.has_ended(); }));
  EXPECT_EQ(other.side.ended.at(1), Cause::kNone);
  EXPECT_EQ(wrong_at(other.memory, 1), std::nullopt);
}

/// As a program does that registers memory for each request.
TEST_F(TransferPeers, BuffersThatCameAndWentAreNotCounted) {
  constexpr size_t kBuffers = 500, kBytes = 64;
  std::vector<std::byte> theirs(kBytes), mine(kBuffers * kBytes);
  fill(theirs, 3);
  net.add_buffer(owner, theirs, kMayRead);
  const auto there = reinterpret_cast<uint64_t>(theirs.data());
  Side& me = net.add();
  const uint64_t link = net.connect(me, owner);
  for (uint64_t turn = 0; turn < 36; ++turn) {  // beyond what may be lent at once
    std::vector<uint64_t> buffers;
    me.ended.clear();
    for (size_t i = 0; i < kBuffers; ++i) {
      const MutableBytes memory = std::span(mine).subspan(i * kBytes, kBytes);
      buffers.push_back(net.add_buffer(me, memory, kNoRights));
      me.rail->post(link, {i, Operation::kRead, buffers.back(), memory, there, 0});
    }
    ASSERT_TRUE(net.run(1'000'000, [&] { return me.ended.size() == kBuffers; })) << turn;
    for (const auto& [piece, cause] : me.ended) ASSERT_EQ(cause, Cause::kNone) << turn;
    for (const uint64_t buffer : buffers) {
      me.owned.buffers.remove(buffer);
      me.rail->retire_buffer(buffer);
    }
    ASSERT_TRUE(net.run(1'000'000, [&] {
      return std::none_of(buffers.begin(), buffers.end(),
                          [&](uint64_t buffer) { return me.rail->holds_buffer(buffer); });
    }));
  }
  EXPECT_TRUE(me.lost.empty());
  EXPECT_EQ(wrong_at(std::span(mine).first(kBytes), 3), std::nullopt);
}

TEST_F(TransferPeers, AnOwnerWithoutRoomForWritesFailsThemAndKeepsItsLink) {
  uint64_t file = 0, size_bytes = 0;
  ASSERT_EQ(open_now(owner.owned.exports, "kv/new", kMayWrite, file, size_bytes), Cause::kNone);
  std::vector<std::byte> memory(4096);
  Side& me = net.add();
  const uint64_t buffer = net.add_buffer(me, memory, kNoRights), link = net.connect(me, owner);
  me.rail->post(link, {1, Operation::kWrite, buffer, memory, 0, file});
  owner.rail->send(owner.up.front().link, StageAnswer{Cause::kTooMuch, 0, {}});
  ASSERT_TRUE(net.run(100'000, [&] { return me.ended.size() == 1; }));
  EXPECT_EQ(me.ended.at(1), Cause::kTooMuch);
  EXPECT_TRUE(me.lost.empty());
}

/// It says so of parts that are still on their way to it.
TEST_F(TransferPeers, AnOwnerThatSaysTooEarlyThatItHasWrittenEndsNobody) {
  uint64_t file = 0, size_bytes = 0;
  ASSERT_EQ(open_now(owner.owned.exports, "kv/new", kMayWrite, file, size_bytes), Cause::kNone);
  std::vector<std::byte> memory(2 * kStagedBytes);
  fill(memory, 1);
  Side& me = net.add();
  const uint64_t buffer = net.add_buffer(me, memory, kNoRights), link = net.connect(me, owner);
  me.rail->post(link, {1, Operation::kWrite, buffer, memory, 0, file});
  // The first numbers that parts may have (fabric::SlotMap), at any time.
  for (uint64_t turn = 0; turn < 1'000 && me.ended.empty(); ++turn) {
    owner.rail->send(owner.up.front().link,
                     FileWritten{uint64_t{1} << 32 | turn % 64, Cause::kNone});
    net.run(5);
  }
  EXPECT_TRUE(net.run(1'000'000, [&] { return !me.ended.empty(); }));
}

/// The owner's answer to the one is none to the other.
TEST_F(TransferPeers, AWriteThatLeavesItsRangeFailsNoOtherAtItsAddress) {
  std::vector<std::byte> theirs(4096), mine(8192);
  fill(mine, 1);
  net.add_buffer(owner, theirs, kMayWrite);
  Side& me = net.add();
  const uint64_t buffer = net.add_buffer(me, mine, kNoRights), link = net.connect(me, owner);
  const auto there = reinterpret_cast<uint64_t>(theirs.data());
  const std::span<std::byte> all(mine);
  me.rail->post(link, {1, Operation::kWrite, buffer, all, there, 0});
  me.rail->post(link, {2, Operation::kWrite, buffer, all.first(64), there, 0});
  me.rail->post(link, {3, Operation::kWrite, buffer, all.first(4097), there, 0});
  ASSERT_TRUE(net.run(100'000, [&] { return me.ended.size() == 3; }));
  EXPECT_EQ(me.ended.at(1), Cause::kOutside);
  EXPECT_EQ(me.ended.at(2), Cause::kNone);
  EXPECT_EQ(me.ended.at(3), Cause::kOutside);
  EXPECT_EQ(wrong_at(std::span(theirs).first(64), 1), std::nullopt);
}

/// It speaks fabric's protocol, and takes no message that it is sent.
TEST_F(TransferPeers, OneThatAsksAndHearsNoAnswerIsShutOut) {
  const auto stranger = net.add_stranger();
  const auto at = fabric::decode_address(owner.rail->address()).value();
  const uint64_t peer = stranger->connect(at, net.now_ns() + 100'000'000).value();
  const auto say = [&](const RailMessage& message) {
    return net.run(
        100'000, [&] { return !owner.lost.empty() || stranger->send(peer, encode(message)).ok(); });
  };
  ASSERT_TRUE(say(Hello{{9, 9}, RailNet::kStranger, 1}));
  ASSERT_TRUE(net.run(100'000, [&] { return owner.up.size() == 1; }));
  const Reads outside{std::vector<ReadRequest>(kReadsInMessage)};
  for (int said = 0; owner.lost.empty() && said < 20'000; ++said) ASSERT_TRUE(say(outside));
  ASSERT_FALSE(owner.lost.empty()) << "what it is to be told piles up";
  EXPECT_EQ(owner.lost.front().why, fabric::PeerFailure::kTooMuch);
}

/// A link that breaks may have taken it along without a word.
TEST_F(TransferPeers, AFenceThatHasNoAnswerIsAskedForAgain) {
  Side& second = net.add(&owner);
  Owned owned;
  owned.jobs = std::make_unique<JobsAtOnce>();
  const Incarnation who{5, 5};
  std::vector<std::unique_ptr<Rail>> rails;
  for (int i = 0; i < 2; ++i)
    rails.push_back(Rail::open(net.open_domain(net.add_host()), who, {}, nullptr, owned).value());
  FabricBackend fabric(std::move(rails), who);
  std::vector<BackendEvent> events;
  net.also([&](uint64_t now_ns) {
    while (fabric.step(now_ns))
      for (const BackendEvent& event : fabric.take_events())
        if (!std::holds_alternative<WayUp>(event)) events.push_back(event);
  });
  ASSERT_TRUE(fabric.add_way(1, owner.who, 0, owner.rail->address()).ok());
  ASSERT_TRUE(fabric.add_way(2, owner.who, 1, second.rail->address()).ok());
  ASSERT_TRUE(net.run(100'000, [&] { return fabric.is_up(1) && fabric.is_up(2); }));
  fabric.fence(1);
  const auto asked = [&](size_t times) {
    return net.run(1'000'000, [&] { return second.messages.size() == times; });
  };
  ASSERT_TRUE(asked(1));
  ASSERT_TRUE(asked(2)) << "the owner has not answered";
  EXPECT_TRUE(events.empty());
  const auto* again = std::get_if<FenceRequest>(&second.messages.back());
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->engine, fabric.rail(0).number());
  second.rail->send(second.up.front().link, FenceAnswer{again->token});
  ASSERT_TRUE(net.run(100'000, [&] { return !events.empty(); }));
  const auto* fenced = std::get_if<WayFenced>(&events.front());
  ASSERT_NE(fenced, nullptr);
  EXPECT_EQ(fenced->way, 1u);
  net.stop();
}

/// However many others have links and nothing due.
TEST_F(TransferPeers, OneThatFallsSilentIsGivenUpInTimeAndNoOtherIs) {
  Side& second = net.add();
  Owned owned;
  owned.jobs = std::make_unique<JobsAtOnce>();
  const Incarnation who{5, 5};
  std::vector<std::unique_ptr<Rail>> rails;
  rails.push_back(Rail::open(net.open_domain(net.add_host()), who, {}, nullptr, owned).value());
  FabricBackend fabric(std::move(rails), who);
  std::vector<uint32_t> lost;
  net.also([&](uint64_t now_ns) {
    while (fabric.step(now_ns))
      for (const BackendEvent& event : fabric.take_events())
        if (const auto* gone = std::get_if<OwnerLost>(&event)) lost.push_back(gone->way);
  });
  const uint64_t begun_ns = net.now_ns();
  ASSERT_TRUE(fabric.add_way(1, owner.who, 0, owner.rail->address()).ok());
  net.pause(second);
  ASSERT_TRUE(fabric.add_way(2, second.who, 0, second.rail->address()).ok());
  ASSERT_TRUE(net.run(100'000, [&] { return fabric.is_up(1); }));
  EXPECT_LE(fabric.next_deadline_ns(), begun_ns + 11'000'000'000) << "it wakes for it";
  EXPECT_TRUE(fabric.notify(owner.who, "behind", {}));
  ASSERT_TRUE(net.run(100'000, [&] {
    return std::any_of(owner.messages.begin(), owner.messages.end(), [](const RailMessage& each) {
      return std::holds_alternative<Notification>(each);
    });
  }));
  EXPECT_EQ(fabric.unanswered(owner.who), 1u);
  owner.rail->send(owner.up.front().link, NotificationAnswer{1, Cause::kNone});
  ASSERT_TRUE(net.run(100'000, [&] { return fabric.unanswered(owner.who) == 0; }));
  ASSERT_TRUE(net.run(12'000'000, [&] { return !lost.empty(); }));
  EXPECT_EQ(lost, std::vector<uint32_t>{2});
  EXPECT_GE(net.now_ns(), begun_ns + 9'900'000'000);
  fabric.remove_peer(second.who);
  net.run(10'000);
  EXPECT_TRUE(fabric.is_up(1));
  EXPECT_EQ(lost.size(), 1u);
  net.stop();
}

class TransferDials : public TransferPeers {
 protected:
  std::vector<Side*> add_owners(size_t count) {
    std::vector<Side*> owners;
    while (owners.size() < count) owners.push_back(&net.add());
    return owners;
  }
};

/// As after a switch was away: all at once would be too much for it and for the peers.
TEST_F(TransferDials, ManyPeersAreDialledOneAfterTheOther) {
  constexpr uint32_t kOwners = 100, kAtOnce = 64, kPerMs = 1;
  const std::vector<Side*> owners = add_owners(kOwners);
  Dialler dialler(net);
  const uint64_t begun_ns = monotonic_ns();
  dialler.add_ways(owners);
  const uint64_t dials = dialler.fabric->statistics().dials;
  EXPECT_LE(dials, kAtOnce + (monotonic_ns() - begun_ns) / 1'000'000 * kPerMs + 1);
  EXPECT_GE(dials, kAtOnce);
  EXPECT_TRUE(net.run(2'000'000, [&] { return dialler.are_up(0, kOwners); }));
  EXPECT_EQ(dialler.fabric->statistics().dials, kOwners) << "each once";
}

TEST_F(TransferDials, PeersThatRefuseKeepNoOtherWaiting) {
  constexpr uint32_t kRefused = 60, kOwners = 20;
  const std::vector<Side*> owners = add_owners(kOwners);
  Dialler dialler(net);
  dialler.add_refused_ways(owner, kRefused);
  net.run(100'000);
  dialler.add_ways(owners);
  EXPECT_TRUE(net.run(1'000'000, [&] { return dialler.are_up(kRefused, kRefused + kOwners); }));
}

/// And waits behind none that is to be dialled.
TEST_F(TransferDials, APeerThatHasALinkAlreadyIsNotDialled) {
  constexpr uint32_t kRefused = 300;
  Dialler dialler(net);
  const auto link =
      owner.rail->dial(dialler.who, dialler.fabric->rail(0).address(), net.now_ns() + 100'000'000);
  ASSERT_TRUE(link.ok());
  ASSERT_TRUE(net.run(100'000, [&] { return owner.rail->is_up(link.value()); }));
  dialler.add_refused_ways(owner, kRefused);
  dialler.add_ways({&owner});
  EXPECT_TRUE(dialler.fabric->is_up(kRefused));
  EXPECT_EQ(dialler.fabric->statistics().dials, 0u);
}

/// A request beyond the limit fails alone, and the limit counts what is under way.
TEST(TransferLimits, ARequestTooManyIsTooMuchAndNoOtherIs) {
  auto owned = std::make_unique<Owned>();
  owned->jobs = std::make_unique<JobsAtOnce>();
  EngineOptions options;
  options.incarnation = {3, 3};
  options.requests_max = 2;
  Engine engine(std::move(owned), {}, {}, options);
  std::vector<std::byte> memory(3 * 4096);
  ASSERT_TRUE(engine.add_buffer(memory, kMayRead | kMayWrite).ok());
  const uint64_t segment = engine.open_segment(engine.describe()).value();
  fill(std::span(memory).first(4096), 1);
  const Request write{segment, Operation::kWrite, memory.data(),
                      reinterpret_cast<uint64_t>(memory.data()) + 4096, 4096};
  for (int turn = 0; turn < 3; ++turn) {
    const uint64_t batch = engine.submit({write, write, write}, std::nullopt).value();
    for (int step = 0; !engine.status(batch).value().has_ended() && step < 1000; ++step)
      engine.step(monotonic_ns());
    EXPECT_EQ(engine.outcomes(batch).value()[0].cause, Cause::kNone) << turn;
    EXPECT_EQ(engine.outcomes(batch).value()[1].cause, Cause::kNone) << turn;
    EXPECT_EQ(engine.outcomes(batch).value()[2].cause, Cause::kTooMuch) << turn;
    EXPECT_EQ(engine.status(batch).value().failed_count, 1u);
  }
  EXPECT_EQ(wrong_at(std::span(memory).subspan(4096, 4096), 1), std::nullopt);
}

TEST(TransferDue, TheEarliestIsTakenAndEachKeyHasOneTime) {
  Due<int> due;
  EXPECT_EQ(due.next_ns(), ~uint64_t{0});
  for (int key = 0; key < 1000; ++key) due.set(key, 5000u + static_cast<uint64_t>(key));
  due.set(7, 100);
  due.set(8, 200);
  due.set(8, 300);
  due.erase(9);
  due.erase(5555);
  EXPECT_EQ(due.size(), 999u);
  EXPECT_EQ(due.next_ns(), 100u);
  EXPECT_EQ(due.take(100), std::nullopt);
  EXPECT_EQ(due.take(400), 7);
  EXPECT_EQ(due.take(400), 8);
  EXPECT_EQ(due.take(400), std::nullopt) << "its earlier time is gone";
  EXPECT_EQ(due.next_ns(), 5000u);
  due.set_if_earlier(0, 6000);
  EXPECT_EQ(due.next_ns(), 5000u);
  due.set_if_earlier(0, 4000);
  EXPECT_EQ(due.first(4001), 0);
  EXPECT_EQ(due.take(4001), 0) << "a look has not taken it";
}

/// An engine that has opened segments of both the owner and another peer.
TEST_F(TransferPeers, WhoWasNotAskedForAFileAnswersInVain) {
  make_file("model", 100, 1);
  Side& liar = net.add();
  Side& me = net.add();
  auto owned = std::make_unique<Owned>();
  owned->jobs = std::make_unique<JobsAtOnce>();
  EngineOptions options;
  options.incarnation = me.who;
  std::vector<std::unique_ptr<Rail>> rails;
  rails.push_back(Rail::open(net.open_domain(me.host), me.who, {}, nullptr, *owned).value());
  Engine engine(std::move(owned), std::move(rails), {{"sim", "here", 1, {}, {}}}, options);
  net.also([&](uint64_t now_ns) { engine.step(now_ns); });
  const auto open_segment = [&](Side& side) {
    Description peer;
    peer.incarnation = side.who;
    peer.rails = {{"sim", "there", 1, {}, side.rail->address()}};
    const uint64_t segment = engine.open_segment(peer).value();
    EXPECT_TRUE(net.run(100'000, [&] { return engine.ways_up(segment).first == 1; }));
    return segment;
  };
  const uint64_t segment = open_segment(owner);
  open_segment(liar);
  const auto lie = [&](uint64_t token) {
    liar.rail->send(liar.up.front().link, FileOpened{token, Cause::kNone, 66, 66});
    net.run(1'000);
  };
  for (uint64_t token = 0; token < 20; ++token) lie(token);
  for (uint64_t token = 0; token < 20; ++token) EXPECT_EQ(engine.take_file(token), std::nullopt);
  net.pause(owner);
  const uint64_t token = engine.ask_for_file(segment, "kv/model", kMayRead).value();
  lie(token);
  EXPECT_EQ(engine.take_file(token), std::nullopt) << "its owner has not answered";
  net.resume(owner);
  std::optional<FileOpened> opened;
  ASSERT_TRUE(net.run(100'000, [&] { return (opened = engine.take_file(token)).has_value(); }));
  EXPECT_EQ(opened->size_bytes, 100u);
  net.stop();
}

}  // namespace
}  // namespace braid::transfer::test
