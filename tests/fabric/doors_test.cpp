// Doors (fabric/domain.h), on every kind of wire that has them.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstring>

#include "fabric/contract.h"

namespace braid::fabric {
namespace {

using test::ContractTest;
using test::some_bytes;
using Clock = std::chrono::steady_clock;

class DoorTest : public ContractTest {
 protected:
  void SetUp() override {
    ContractTest::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_TRUE(target().domain->traits().closing_fences);
    source_ = source_of(bytes_);
    memory_ = target_of(bytes_.size());
    from_ = add(writer(), source_, Access::kLocal);
    door_ = target().domain->open_door().value();
    const auto into = target().domain->add_door_region(door_, memory_->bytes());
    ASSERT_TRUE(into.ok()) << into.status().message();
    into_ = into.value();
  }
  uint32_t through(uint32_t door) {
    return writer()
        .domain
        ->connect_all(target().domain->door_address(door),
                      target().domain->further_door_addresses(door))
        .value();
  }
  Write write_to(uint32_t peer, uint64_t context) {
    Write write = to(target().domain->remote_range(into_), 0, from_, source_->bytes(), context);
    write.peer = peer;
    write.immediate = 7;
    return write;
  }
  void close() {
    target().domain->close_door(door_);
    ASSERT_TRUE(wait([&] { return target().domain->drain_door(door_) == Drain::kOver; }));
  }

  const std::vector<std::byte> bytes_ = some_bytes(70'001, 3);
  std::unique_ptr<test::Memory> source_, memory_;
  uint32_t from_ = 0, door_ = 0, into_ = 0;
};

TEST_P(DoorTest, AWriteComesThroughIt) {
  post(write_to(through(door_), 1));
  ASSERT_TRUE(wait([&] { return target().immediates[7] == 1 && writer().ended.size() == 1; }));
  EXPECT_EQ(memory_->get(), bytes_);
  close();
}

TEST_P(DoorTest, WhoWaitsForTheDescriptorHearsWhatComesThroughIt) {
  const int descriptor = target().domain->wait_descriptor();
  if (descriptor < 0) return;  // it is looked at
  const auto is_readable = [&] {
    pollfd awaited{descriptor, POLLIN, 0};
    return ::poll(&awaited, 1, 1) == 1;
  };
  const uint32_t door = through(door_);
  for (int turn = 1; turn <= 5; ++turn) {
    for (test::Patience patience(10'000); !target().domain->arm() && !patience.is_over();)
      target().poll();
    ASSERT_TRUE(wait(
        [&] { return writer().domain->post_write(write_to(door, static_cast<uint64_t>(turn))); }));
    for (test::Patience patience(10'000); target().immediates[7] < turn && !patience.is_over();) {
      writer().poll();
      if (!target().domain->arm() || is_readable()) target().poll();
    }
    ASSERT_EQ(target().immediates[7], turn);
    ASSERT_TRUE(wait([&] { return writer().ended.size() == static_cast<size_t>(turn); }));
  }
}

/// Many have nothing to bring for so long that they are looked at in turns.
TEST_P(DoorTest, QuietOnesAreHeardAmongMany) {
  constexpr int kCount = 20, kLooks = 400;
  std::vector<Write> writes;
  for (int i = 0; i < kCount; ++i) {
    const uint32_t door = target().domain->open_door().value();
    const uint32_t into = target().domain->add_door_region(door, memory_->bytes()).value();
    Write write = to(target().domain->remote_range(into), 0, from_, source_->bytes(), 100 + i);
    write.peer = through(door);
    write.immediate = 7;
    writes.push_back(write);
  }
  for (int turn = 1; turn <= 2; ++turn) {
    for (const Write& write : writes) post(write);
    ASSERT_TRUE(wait([&] {
      return target().immediates[7] == turn * kCount && writer().ended.size() == kCount;
    })) << turn;
    writer().ended.clear();
    for (int look = 0; look < kLooks; ++look) target().poll();
  }
}

/// A peer that lies has a key, and writes where it was not told to: to the address for messages, or
/// through somebody else's door. Where keys hold everywhere, that ends with the region.
TEST_P(DoorTest, AKeyLeadsNowhereElse) {
  const uint32_t another = target().domain->open_door().value();
  const bool ends_with_the_region = !target().domain->traits().door_keys;
  const uint32_t honest = through(door_);
  Write right = write_to(honest, 1);
  if (ends_with_the_region) target().domain->remove_region(into_);
  for (const uint32_t peer : {peer_, through(another)}) {
    writer().ended.clear();
    Write lie = right;
    lie.peer = peer;
    lie.context = 100 + peer;
    wait([&] { return writer().domain->post_write(lie); }, 20'000);
    expect_nothing_lands(memory_);
  }
  if (ends_with_the_region) return;
  post(right);
  ASSERT_TRUE(wait([&] { return target().immediates[7] == 1; })) << "the right way is open still";
  EXPECT_EQ(memory_->get(), bytes_);
}

TEST_P(DoorTest, NothingLandsOnceItIsClosedAndDrained) {
  const uint32_t peer = through(door_);
  post(write_to(peer, 1));
  ASSERT_TRUE(wait([&] { return target().immediates[7] == 1; }));
  for (uint64_t context = 2; context < 10; ++context)
    if (!writer().domain->post_write(write_to(peer, context))) break;
  // Both ends of one process share what shm maps: the writer would lose it. The tests of two
  // processes have it closed in the middle of writes.
  if (GetParam().name == "shm") wait([] { return false; }, 5'000);
  close();
  memory_->put(std::vector<std::byte>(bytes_.size()));
  wait([] { return false; }, 5'000);
  EXPECT_EQ(memory_->get(), std::vector<std::byte>(bytes_.size()));
  target().domain->remove_region(into_);
}

/// The writer stands still: it does not see that its connection has ended.
TEST_P(DoorTest, WhoWaitsIsNotWokenAgainAndAgainWhileItDrains) {
  const int descriptor = target().domain->wait_descriptor();
  if (descriptor < 0) return;  // it is looked at
  post(write_to(through(door_), 1));
  ASSERT_TRUE(wait([&] { return target().immediates[7] == 1; }));
  target().domain->close_door(door_);
  const auto begin = Clock::now();
  const auto waited_ms = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
  };
  int looks = 0;
  while (target().domain->drain_door(door_) != Drain::kOver && waited_ms() < 300) {
    pollfd awaited{descriptor, POLLIN, 0};
    if (target().domain->arm() && ::poll(&awaited, 1, 10) == 0) continue;
    target().poll();
    ++looks;
  }
  EXPECT_LE(looks, 20 + 2 * waited_ms()) << "it is looked at each millisecond";
}

/// Memory that is not granted to anybody alone, as what notifications write to.
TEST_P(DoorTest, OtherMemoryIsReachedThroughEveryDoor) {
  const auto before = target_of(64), after = target_of(64);
  const uint32_t opened_after = add(target(), before, Access::kRemoteWrite);
  const uint32_t later_door = target().domain->open_door().value();
  const uint32_t opened_before = add(target(), after, Access::kRemoteWrite);
  uint64_t context = 1;
  for (const uint32_t door : {door_, later_door})
    for (const uint32_t region : {opened_after, opened_before}) {
      Write write = to(target().domain->remote_range(region), 0, from_, source_->bytes().first(64),
                       context++);
      write.peer = through(door);
      post(write);
      ASSERT_TRUE(wait([&] { return writer().ended.contains(write.context); })) << write.context;
      EXPECT_EQ(writer().ended[write.context], std::vector<bool>{true});
    }
  EXPECT_EQ(before->get(), after->get());
  EXPECT_EQ(std::memcmp(before->get().data(), bytes_.data(), 64), 0);
}

INSTANTIATE_TEST_SUITE_P(WithThread, DoorTest, testing::ValuesIn(test::threaded_wire_kinds()),
                         test::name_of_wire);
INSTANTIATE_TEST_SUITE_P(Wires, DoorTest, testing::ValuesIn(test::host_wire_kinds()),
                         test::name_of_wire);

}  // namespace
}  // namespace braid::fabric
