// The contract of fabric/domain.h, on every kind of wire.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <map>
#include <random>

#include "fabric/contract.h"

namespace braid::fabric {
namespace {

using test::ContractTest;
using test::End;
using test::some_bytes;

TEST_P(ContractTest, AWriteIsThereOnceItHasCompletedAndOnceItsImmediateHasCome) {
  for (const size_t size_bytes : {1, 8, 63, 64, 65, 4096, 70'001, 5'000'000}) {
    const auto bytes = some_bytes(size_bytes, 1);
    const auto source = source_of(bytes), memory = target_of(size_bytes + 2);
    const uint32_t from = add(writer(), source, Access::kLocal);
    const uint32_t into = add(target(), memory, Access::kRemoteWrite);
    Write write = to(target().domain->remote_range(into), 1, from, source->bytes(), size_bytes);
    write.immediate = static_cast<uint32_t>(size_bytes);
    const auto is_there = [&] {
      return std::memcmp(memory->get().data() + 1, bytes.data(), size_bytes) == 0;
    };
    post(write);
    ASSERT_TRUE(wait([&] { return target().immediates.count(*write.immediate) == 1; }));
    EXPECT_TRUE(is_there()) << size_bytes;
    ASSERT_TRUE(wait([&] { return writer().ended.count(size_bytes) == 1; }));
    EXPECT_EQ(writer().ended[size_bytes], std::vector<bool>{true});
    EXPECT_TRUE(is_there()) << size_bytes;
    EXPECT_EQ(memory->get().front(), std::byte{0});
    EXPECT_EQ(memory->get().back(), std::byte{0});
    writer().domain->remove_region(from);
    target().domain->remove_region(into);
  }
}

TEST_P(ContractTest, SegmentsLandWhereTheyBelongAndAreCountedTogether) {
  const size_t count = writer().domain->traits().segments_max;
  const uint32_t slices = count == 1 ? 1 : 1'000'000'007;
  for (const size_t size_bytes : {1, 100, 8192, 70'000}) {
    const auto bytes = some_bytes(count * size_bytes, 9);
    const auto source = source_of(bytes), memory = target_of(2 * count * size_bytes);
    const uint32_t from = add(writer(), source, Access::kLocal);
    const uint32_t into = add(target(), memory, Access::kRemoteWrite);
    std::vector<std::byte> expected(2 * count * size_bytes);
    std::vector<Segment> segments;
    for (size_t i = 0; i < count; ++i) {
      const size_t place = (2 * (count - i) - 1) * size_bytes;  // backwards, with gaps
      segments.push_back({source->bytes().subspan(i * size_bytes, size_bytes),
                          target().domain->remote_range(into).base + place});
      std::copy_n(bytes.begin() + i * size_bytes, size_bytes, expected.begin() + place);
    }
    Write write = to(target().domain->remote_range(into), 0, from, segments[0].source, size_bytes);
    write.target_address = segments[0].target_address;
    write.further = std::span(segments).subspan(1);
    write.immediate = static_cast<uint32_t>(size_bytes);
    write.slices = slices;
    post(write);
    ASSERT_TRUE(wait([&] { return target().immediates.contains(*write.immediate); }));
    EXPECT_EQ(target().immediates[*write.immediate], static_cast<int>(slices));
    EXPECT_EQ(memory->get(), expected) << size_bytes;
    ASSERT_TRUE(wait([&] { return writer().ended.contains(size_bytes); }));
    EXPECT_EQ(writer().ended[size_bytes], std::vector<bool>{true});
    writer().domain->remove_region(from);
    target().domain->remove_region(into);
  }
}

TEST_P(ContractTest, ACompletedWriteIsThereWithoutAnImmediateToo) {
  const auto bytes = some_bytes(300'000, 2);
  const auto source = source_of(bytes), memory = target_of(bytes.size());
  const uint32_t from = add(writer(), source, Access::kLocal);
  const uint32_t into = add(target(), memory, Access::kRemoteWrite);
  post(to(target().domain->remote_range(into), 0, from, source->bytes(), 7));
  ASSERT_TRUE(wait([&] { return writer().ended.count(7) == 1; }));
  EXPECT_EQ(memory->get(), bytes);
  EXPECT_EQ(target().immediate_count, 0);
}

TEST_P(ContractTest, WhoWaitsForTheDescriptorMissesNothing) {
  const int descriptor = target().domain->wait_descriptor();
  if (descriptor < 0) {
    EXPECT_FALSE(target().domain->arm());  // so it is looked at
    return;
  }
  const auto bytes = some_bytes(100'000, 4);
  const auto source = source_of(bytes), memory = target_of(bytes.size());
  const uint32_t from = add(writer(), source, Access::kLocal);
  const uint32_t into = add(target(), memory, Access::kRemoteWrite);
  const auto is_readable = [&] {
    pollfd awaited{descriptor, POLLIN, 0};
    return ::poll(&awaited, 1, 1) == 1;
  };
  post(to(target().domain->remote_range(into), 0, from, source->bytes(), 0));  // both are connected
  ASSERT_TRUE(wait([&] { return writer().ended.contains(0); }));
  for (uint32_t turn = 1; turn <= 20; ++turn) {
    // What a thread of the domain's own hears late may come between the two.
    const auto is_quiet = [&] { return target().domain->arm() && !is_readable(); };
    for (test::Patience patience(10'000); !is_quiet() && !patience.is_over();) target().poll();
    EXPECT_FALSE(is_readable()) << turn;
    Write write = to(target().domain->remote_range(into), 0, from, source->bytes(), turn);
    write.immediate = turn;
    ASSERT_TRUE(wait([&] { return writer().domain->post_write(write); }));
    for (test::Patience patience(10'000);
         !target().immediates.contains(turn) && !patience.is_over();) {
      writer().poll();
      if (!target().domain->arm() || is_readable()) target().poll();
    }
    ASSERT_EQ(target().immediates[turn], 1);
    ASSERT_EQ(memory->get(), bytes);
    ASSERT_TRUE(wait([&] { return writer().ended.contains(turn); }));
  }
}

TEST_P(ContractTest, EveryBitOfAnImmediateArrives) {
  const auto source = source_of(some_bytes(1, 3)), memory = target_of(1);
  const uint32_t from = add(writer(), source, Access::kLocal);
  const uint32_t into = add(target(), memory, Access::kRemoteWrite);
  const uint32_t values[] = {0, 1, 0x80000000, 0xffffffff, 0x12345678};
  for (const uint32_t value : values) {
    Write write = to(target().domain->remote_range(into), 0, from, source->bytes(), value);
    write.immediate = value;
    post(write);
  }
  ASSERT_TRUE(wait([&] { return target().immediate_count == 5 && writer().ended.size() == 5; }));
  for (const uint32_t value : values) EXPECT_EQ(target().immediates[value], 1) << value;
}

TEST_P(ContractTest, ManyWritesOfManySizesArriveOnceEach) {
  constexpr size_t kWrites = 2000;
  std::mt19937 random(4);
  const auto bytes = some_bytes(1 << 20, 4);
  std::vector<std::byte> expected(bytes.size());
  const auto source = source_of(bytes), memory = target_of(bytes.size());
  const uint32_t from = add(writer(), source, Access::kLocal);
  const uint32_t into = add(target(), memory, Access::kRemoteWrite);
  const size_t part_bytes = bytes.size() / kWrites;
  for (size_t i = 0; i < kWrites; ++i) {
    const size_t size_bytes = 1 + random() % part_bytes, first = i * part_bytes;
    Write write = to(target().domain->remote_range(into), first, from,
                     source->bytes().subspan(first, size_bytes), i);
    write.immediate = static_cast<uint32_t>(i % 10);
    std::memcpy(expected.data() + first, bytes.data() + first, size_bytes);
    post(write);
  }
  ASSERT_TRUE(wait([&] {
    return writer().ended.size() == kWrites && target().immediate_count >= int{kWrites};
  }));
  wait([] { return false; }, 1000);  // would one come twice?
  EXPECT_EQ(target().immediate_count, int{kWrites});
  for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(target().immediates[i], int{kWrites} / 10);
  for (const auto& [context, results] : writer().ended)
    EXPECT_EQ(results, std::vector<bool>{true}) << context;
  EXPECT_TRUE(memory->get() == expected);
}

TEST_P(ContractTest, MessagesArriveWholeInBuffersOfBeforeAndAfter) {
  constexpr size_t kMessages = 200, kSize = 4096;
  auto sources = some_bytes(kMessages * kSize, 5);
  const auto buffers = wire_->host_memory(1, kMessages * kSize);
  const uint32_t from = add(writer(), sources, Access::kLocal);
  const uint32_t into = add(target(), buffers, Access::kLocal);
  size_t posted = 0;
  const auto post_receives = [&](size_t count) {
    for (; posted < count; ++posted)
      ASSERT_TRUE(wait([&] {
        return target().domain->post_receive(into, buffers->bytes().subspan(posted * kSize, kSize),
                                             posted);
      }));
  };
  post_receives(20);
  for (size_t i = 0; i < kMessages; ++i) {
    const Bytes message = Bytes(sources).subspan(i * kSize, 1 + i * 20 % kSize);
    ASSERT_TRUE(wait([&] {
      if (i >= 10) post_receives(std::min(kMessages, i + 10));
      return writer().domain->post_send(peer_, from, message, i);
    }));
  }
  post_receives(kMessages);
  ASSERT_TRUE(wait([&] {
    return writer().ended.size() == kMessages && target().received_bytes.size() == kMessages;
  }));
  std::multimap<std::vector<std::byte>, size_t> expected;
  for (size_t i = 0; i < kMessages; ++i) {
    const auto first = sources.begin() + static_cast<ptrdiff_t>(i * kSize);
    expected.emplace(
        std::vector<std::byte>(first, first + 1 + static_cast<ptrdiff_t>(i * 20 % kSize)), i);
  }
  const std::vector<std::byte> arrived = buffers->get();
  for (const auto& [buffer, size_bytes] : target().received_bytes) {
    const auto first = arrived.begin() + static_cast<ptrdiff_t>(buffer * kSize);
    const auto found = expected.find({first, first + static_cast<ptrdiff_t>(size_bytes)});
    ASSERT_NE(found, expected.end()) << "a message that nobody has sent";
    expected.erase(found);
  }
}

/// On some wires such a write never completes: what counts is that nothing lands.
TEST_P(ContractTest, NothingLandsWithAnotherKey) {
  const auto source = source_of(some_bytes(256, 6)), memory = target_of(4096);
  const uint32_t from = add(writer(), source, Access::kLocal);
  const uint32_t into = add(target(), memory, Access::kRemoteWrite);
  Write wrong_key = to(target().domain->remote_range(into), 0, from, source->bytes(), 1);
  wrong_key.target_key ^= 0x10;
  wrong_key.immediate = 99;
  post(wrong_key);
  expect_nothing_lands(memory);
}

TEST_P(ContractTest, NothingLandsOutsideARegion) {
  const auto source = source_of(some_bytes(256, 6)), memory = target_of(4096);
  const uint32_t from = add(writer(), source, Access::kLocal);
  const uint32_t into = add(target(), memory->bytes().subspan(1024, 1024), Access::kRemoteWrite);
  Write too_far = to(target().domain->remote_range(into), 900, from, source->bytes(), 1);
  too_far.immediate = 99;
  post(too_far);
  expect_nothing_lands(memory);
}

/// Libfabric's TCP providers let a write that has begun land after its region was closed: they do
/// not say that they fence.
/// As a process that is stopped.
TEST_P(ContractTest, APeerThatIsSilentHoldsUpNobodyElse) {
  const auto bytes = some_bytes(4096, 9);
  const auto source = source_of(bytes), memory = target_of(bytes.size());
  const auto silent_memory = target_of(bytes.size());
  const uint32_t from = add(writer(), source, Access::kLocal);
  const uint32_t into = add(target(), memory, Access::kRemoteWrite);
  End silent;
  silent.domain = wire_->open(1);
  const uint32_t silent_into = add(silent, silent_memory, Access::kRemoteWrite);
  const uint32_t peer = peer_;
  peer_ = writer().domain->connect(silent.domain->address()).value();
  for (uint64_t i = 0; i < 3; ++i) {
    const Write write =
        to(silent.domain->remote_range(silent_into), 0, from, source->bytes(), 100 + i);
    wait([&] { return writer().domain->post_write(write); }, 100);  // may be full, as it were
  }
  peer_ = peer;
  for (uint64_t i = 0; i < 3; ++i)
    post(to(target().domain->remote_range(into), 0, from, source->bytes(), i));
  EXPECT_TRUE(wait([&] {
    return writer().ended.contains(0) && writer().ended.contains(1) && writer().ended.contains(2);
  }));
  EXPECT_EQ(memory->get(), bytes);
}

class FenceTest : public ContractTest {};

TEST_P(FenceTest, NothingLandsAfterRemovalInTheMiddleOfAWrite) {
  constexpr size_t kSize = 16 << 20;
  constexpr uint64_t kWrites = 8;  // of one alone the end may have come before it is looked for
  const auto source = source_of(some_bytes(kSize, 8)), memory = target_of(kSize);
  const uint32_t from = add(writer(), source, Access::kLocal);
  const uint32_t into = add(target(), memory, Access::kRemoteWrite);
  ASSERT_TRUE(target().domain->removal_fences(into));
  const RemoteRange range = target().domain->remote_range(into);
  for (uint64_t i = 0; i < kWrites; ++i) post(to(range, 0, from, source->bytes(), i));
  ASSERT_TRUE(wait([&] { return memory->first() != std::byte{0}; }));
  target().domain->remove_region(into);
  ASSERT_TRUE(wait([&] { return target().domain->drain(into) == Drain::kOver; }));
  const std::vector<std::byte> untouched(kSize);
  memory->put(untouched);
  wait([&] { return writer().ended.size() == kWrites; }, 20'000);
  EXPECT_TRUE(memory->get() == untouched);
}

TEST_P(ContractTest, NothingLandsInARegionThatWasRemoved) {
  const auto source = source_of(some_bytes(1 << 20, 7)), memory = target_of(1 << 20);
  const std::vector<std::byte> mark(1 << 20, std::byte{0x5a});
  const uint32_t from = add(writer(), source, Access::kLocal);
  const uint32_t into = add(target(), memory, Access::kRemoteWrite);
  const RemoteRange range = target().domain->remote_range(into);
  post(to(range, 0, from, source->bytes(), 1));
  ASSERT_TRUE(wait([&] { return writer().ended.count(1) == 1; }));
  target().domain->remove_region(into);
  memory->put(mark);
  Write late = to(range, 0, from, source->bytes(), 2);
  late.immediate = 5;
  post(late);
  wait([&] { return writer().ended.count(2) == 1; }, 20'000);
  EXPECT_EQ(memory->get(), mark);
  EXPECT_EQ(target().immediate_count, 0);
}

INSTANTIATE_TEST_SUITE_P(WithThread, ContractTest, testing::ValuesIn(test::threaded_wire_kinds()),
                         test::name_of_wire);
INSTANTIATE_TEST_SUITE_P(Wires, ContractTest, testing::ValuesIn(test::wire_kinds()),
                         test::name_of_wire);
INSTANTIATE_TEST_SUITE_P(Wires, FenceTest, testing::ValuesIn(test::fencing_wire_kinds()),
                         test::name_of_wire);

}  // namespace
}  // namespace braid::fabric
