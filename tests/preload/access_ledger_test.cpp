// Who may touch what, as the program has set it.
#include <gtest/gtest.h>

#include "preload/access_calls.h"
#include "preload/access_ledger.h"

namespace braid::preload {
namespace {

constexpr CUdeviceptr kAt = 0x10000;
constexpr CUmemAccess_flags kNone = CU_MEM_ACCESS_FLAGS_PROT_NONE;
constexpr CUmemAccess_flags kRead = CU_MEM_ACCESS_FLAGS_PROT_READ;
constexpr CUmemAccess_flags kWrite = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

class Access : public ::testing::Test {
 protected:
  static std::vector<CUmemAccessDesc> by(int gpu, CUmemAccess_flags flags) {
    CUmemAccessDesc desc{};
    desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    desc.location.id = gpu;
    desc.flags = flags;
    return {desc};
  }
  static CUmemoryPool pool(intptr_t number) { return reinterpret_cast<CUmemoryPool>(number); }
  AccessLedger ledger_;
};

TEST_F(Access, ALentGpuAnswersAsTheProgramSetIt) {
  ledger_.set({kAt, 100}, by(0, kWrite));
  EXPECT_EQ(ledger_.answer(kAt, 1), std::nullopt) << "nothing is granted: the driver knows";
  ledger_.grant({kAt, 100}, 0b0110);
  EXPECT_EQ(ledger_.answer(kAt, 0), std::nullopt) << "its own GPU is not granted";
  EXPECT_EQ(ledger_.answer(kAt, 1), kNone);
  EXPECT_EQ(ledger_.answer(kAt, 3), std::nullopt);
  ledger_.set({kAt, 100}, by(1, kRead));
  EXPECT_EQ(ledger_.answer(kAt + 99, 1), kRead);
  ledger_.set({kAt, 100}, by(1, kWrite));
  EXPECT_EQ(ledger_.answer(kAt, 1), kWrite);
  ledger_.set({kAt, 100}, by(1, kNone));
  EXPECT_EQ(ledger_.answer(kAt, 1), kNone);
  EXPECT_EQ(ledger_.answer(kAt, 2), kNone);
  EXPECT_EQ(ledger_.answer(kAt + 100, 1), std::nullopt);
  EXPECT_EQ(ledger_.answer(kAt - 1, 1), std::nullopt);
}

TEST_F(Access, WhatWasSetBeforeLendingStays) {
  ledger_.set({kAt, 100}, by(1, kWrite));
  ledger_.set({kAt, 100}, by(2, kRead));
  ledger_.grant({kAt, 100}, 0b1110);
  EXPECT_EQ(ledger_.answer(kAt, 1), kWrite);
  EXPECT_EQ(ledger_.answer(kAt, 2), kRead);
  EXPECT_EQ(ledger_.answer(kAt, 3), kNone);
}

TEST_F(Access, RangesAreCutWhereTheyDiffer) {
  ledger_.set({kAt, 300}, by(0, kWrite));
  ledger_.grant({kAt, 300}, 0b0010);
  ledger_.set({kAt + 100, 100}, by(1, kRead));
  EXPECT_EQ(ledger_.answer(kAt + 99, 1), kNone);
  EXPECT_EQ(ledger_.answer(kAt + 100, 1), kRead);
  EXPECT_EQ(ledger_.answer(kAt + 200, 1), kNone);
  ledger_.grant({kAt + 200, 200}, 0b0100);  // beyond what was known
  EXPECT_EQ(ledger_.answer(kAt + 350, 2), kNone);
  EXPECT_EQ(ledger_.answer(kAt + 350, 1), std::nullopt);
  EXPECT_EQ(ledger_.granted({kAt, 200}), 0b0010u);
  EXPECT_EQ(ledger_.granted({kAt + 150, 100}), 0b0110u);
  EXPECT_EQ(ledger_.granted({kAt + 400, 100}), 0u);
}

TEST_F(Access, UnmappedMemoryIsForgotten) {
  ledger_.set({kAt, 300}, by(0, kWrite));
  ledger_.grant({kAt, 300}, 0b0010);
  ledger_.forget({kAt + 100, 100});
  EXPECT_EQ(ledger_.answer(kAt + 50, 1), kNone);
  EXPECT_EQ(ledger_.answer(kAt + 150, 1), std::nullopt);
  EXPECT_EQ(ledger_.answer(kAt + 250, 1), kNone);
  const std::vector<MappedRange> left = {{kAt, 100}, {kAt + 200, 100}};
  EXPECT_EQ(ledger_.ranges(), left);
  ledger_.set({kAt + 100, 100}, by(0, kWrite));
  EXPECT_EQ(ledger_.answer(kAt + 150, 1), std::nullopt) << "new memory is not granted yet";
}

TEST_F(Access, MemoryThatWasNotUnmappedIsKnownAgain) {
  ledger_.set({kAt, 300}, by(0, kWrite));
  ledger_.set({kAt + 200, 100}, by(1, kRead));
  ledger_.grant({kAt, 300}, 0b0010);
  auto forgotten = ledger_.forget({kAt + 100, 200});
  EXPECT_EQ(ledger_.answer(kAt + 250, 1), std::nullopt);
  // Meanwhile another thread has set the access of a part.
  ledger_.set({kAt + 100, 50}, by(2, kRead));
  ledger_.restore(forgotten);
  EXPECT_EQ(ledger_.answer(kAt + 50, 1), kNone);
  EXPECT_EQ(ledger_.answer(kAt + 120, 1), kNone);
  EXPECT_EQ(ledger_.answer(kAt + 160, 1), kNone);
  EXPECT_EQ(ledger_.answer(kAt + 250, 1), kRead);
  EXPECT_EQ(ledger_.granted({kAt + 100, 50}), 0b0010u);
  ledger_.grant({kAt + 100, 50}, 0b0100);
  EXPECT_EQ(ledger_.answer(kAt + 100, 2), kRead);
}

TEST_F(Access, ARangeThatWrapsIsNone) {
  ledger_.set({kAt, 100}, by(0, kWrite));
  ledger_.set({kAt + 200, 100}, by(0, kWrite));
  EXPECT_TRUE(ledger_.forget({kAt + 200, SIZE_MAX - 100}).empty());
  EXPECT_TRUE(ledger_.forget({kAt, SIZE_MAX - kAt + 2}).empty());
  EXPECT_EQ(ledger_.ranges().size(), 2u);
  EXPECT_EQ(ledger_.forget({kAt, SIZE_MAX - kAt}).size(), 2u);
}

TEST_F(Access, PoolsAreAnsweredLikewise) {
  ledger_.add(pool(1), 0);
  ledger_.set(pool(2), by(1, kRead));  // not one that the program made
  ledger_.grant(pool(1), 0b0110);
  ledger_.grant(pool(2), 0b0110);
  EXPECT_EQ(ledger_.answer(pool(1), 1), kNone);
  EXPECT_EQ(ledger_.answer(pool(2), 1), kRead);
  EXPECT_EQ(ledger_.answer(pool(3), 1), std::nullopt);
  EXPECT_EQ(ledger_.granted(pool(1)), 0b0110u);
  const std::vector<std::pair<CUmemoryPool, int>> made = {{pool(1), 0}};
  EXPECT_EQ(ledger_.pools(), made);
  auto forgotten = ledger_.forget(pool(1));
  EXPECT_EQ(ledger_.answer(pool(1), 1), std::nullopt);
  ledger_.restore(forgotten);
  EXPECT_EQ(ledger_.answer(pool(1), 1), kNone);
  EXPECT_TRUE(ledger_.forget(pool(3)).empty());
}

TEST_F(Access, OnlyAWholeRangeIsKnown) {
  EXPECT_FALSE(ledger_.knows({kAt, 100}));
  ledger_.set({kAt, 100}, by(0, kWrite));
  ledger_.set({kAt + 100, 100}, by(1, kRead));
  ledger_.set({kAt + 300, 100}, by(0, kWrite));
  EXPECT_TRUE(ledger_.knows({kAt, 200}));
  EXPECT_TRUE(ledger_.knows({kAt + 50, 100}));
  EXPECT_TRUE(ledger_.knows({kAt + 300, 100}));
  EXPECT_FALSE(ledger_.knows({kAt, 201}));
  EXPECT_FALSE(ledger_.knows({kAt, 400}));
  EXPECT_FALSE(ledger_.knows({kAt + 200, 50}));
  EXPECT_FALSE(ledger_.knows({kAt - 1, 50}));
  ledger_.forget({kAt + 50, 1});
  EXPECT_FALSE(ledger_.knows({kAt, 200}));
  EXPECT_TRUE(ledger_.knows({kAt + 51, 149}));
}

// A handle may come again, as that of another pool.
TEST_F(Access, APoolIsKnownUntilItIsForgotten) {
  ledger_.add(pool(1), 0);
  EXPECT_TRUE(ledger_.knows(pool(1), 0));
  EXPECT_FALSE(ledger_.knows(pool(1), 1));
  EXPECT_FALSE(ledger_.knows(pool(2), 0));
  ledger_.forget(pool(1));
  ledger_.grant(pool(1), 0b0110);
  EXPECT_FALSE(ledger_.knows(pool(1), 0));
  EXPECT_EQ(ledger_.answer(pool(1), 1), std::nullopt) << "what comes there is not granted";
}

TEST_F(Access, WhatIsSetOfADefaultPoolStays) {
  ledger_.set(pool(1), by(1, kRead));
  ledger_.add_default(pool(1), 0);
  EXPECT_TRUE(ledger_.knows(pool(1), 0));
  ledger_.grant(pool(1), 0b0010);
  EXPECT_EQ(ledger_.answer(pool(1), 1), kRead);
}

// The driver might carry out the program's call after braid's.
TEST(AccessCalls, NothingIsGrantedWhileACallNamesTheMemory) {
  AccessCalls<MappedRange> calls;
  EXPECT_FALSE(calls.postpone({kAt, 100}));
  const auto one = calls.begin({kAt, 100});
  const auto other = calls.begin({kAt + 100, 100});
  EXPECT_TRUE(calls.postpone({kAt + 99, 1}));
  EXPECT_TRUE(calls.postpone({kAt - 50, 51}));
  EXPECT_TRUE(calls.postpone({kAt + 100, 300}));
  EXPECT_FALSE(calls.postpone({kAt + 200, 100}));
  EXPECT_FALSE(calls.postpone({kAt - 50, 50}));
  const std::vector<MappedRange> of_one = {{kAt + 99, 1}, {kAt - 50, 51}};
  const std::vector<MappedRange> of_other = {{kAt + 100, 300}};
  EXPECT_EQ(calls.end(one), of_one);
  EXPECT_EQ(calls.end(other), of_other);
  EXPECT_FALSE(calls.postpone({kAt, 200}));
}

TEST(AccessCalls, PoolsAreToldApart) {
  AccessCalls<GpuPool> calls;
  const auto pool = [](intptr_t number) { return reinterpret_cast<CUmemoryPool>(number); };
  const auto call = calls.begin({pool(1), -1});
  EXPECT_TRUE(calls.postpone({pool(1), 3}));
  EXPECT_FALSE(calls.postpone({pool(2), 3}));
  const auto postponed = calls.end(call);
  ASSERT_EQ(postponed.size(), 1u);
  EXPECT_EQ(postponed[0].gpu, 3);
}

}  // namespace
}  // namespace braid::preload
