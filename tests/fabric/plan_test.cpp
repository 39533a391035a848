// Every byte of a request is in exactly one slice, and both sides know how many slices there are.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>

#include "fabric/policy/plan.h"
#include "fabric/policy/slicing.h"

namespace braid::fabric {
namespace {

constexpr uint64_t kUnlimited = ~uint64_t{0};

void property(const char* what, const std::function<void()>& holds) {
  EXPECT_TRUE(rc::check(what, holds));
}

Slicing some_slicing() {
  return {*rc::gen::inRange<uint64_t>(1, 1 << 20), *rc::gen::inRange<uint64_t>(1, 200)};
}

TEST(Slicing, TheSlicesOfAWriteAreTheWrite) {
  property("union(slices) == write, also beyond 4 GiB", [] {
    const Slicing slicing = some_slicing();
    const uint64_t size_bytes = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 36);
    const uint64_t source = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 40);
    const uint64_t target = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 40);
    const Result<Plan> plan =
        Plan::single({source, target, size_bytes}, kUnlimited, kUnlimited, slicing);
    RC_ASSERT(plan.ok());
    RC_ASSERT(plan.value().slice_count() == immediates_of_write(size_bytes, slicing));
    RC_ASSERT(plan.value().slice_count() <= std::max(slicing.slices_max, uint64_t{1}));
    uint64_t next = 0;
    for (uint64_t i = 0; i < plan.value().slice_count(); ++i) {
      const Slice slice = plan.value().slice(i);
      RC_ASSERT(slice.size_bytes > 0);
      RC_ASSERT(slice.source_offset_bytes == source + next);
      RC_ASSERT(slice.target_offset_bytes == target + next);
      next += slice.size_bytes;
    }
    RC_ASSERT(next == size_bytes);
  });
}

TEST(Slicing, SizesAtTheEndOf64BitsDoNotOverflow) {
  for (const uint64_t size_bytes : {kUnlimited, kUnlimited - 1, uint64_t{1} << 63}) {
    const Slicing slicing{1, 3};
    const uint64_t part = slice_bytes(size_bytes, slicing);
    EXPECT_GE(part, size_bytes / 3);
    EXPECT_LE(immediates_of_write(size_bytes, slicing), 3u);
  }
}

TEST(Slicing, NothingMakesNoImmediate) {
  EXPECT_EQ(immediates_of_write(0), 0u);
  EXPECT_EQ(immediates_of_pages(4096, 0), 0u);
  EXPECT_EQ(immediates_of_pages(0, 7), 0u);
  EXPECT_EQ(immediates_of_pages(4096, 7), 7u);
}

TEST(Plan, TheSlicesOfPagesAreThePages) {
  property("each page's bytes, each once, from its source to its target", [] {
    const Slicing slicing{*rc::gen::inRange<uint64_t>(1, 300), *rc::gen::inRange<uint64_t>(1, 9)};
    const uint64_t page_bytes = *rc::gen::inRange<uint64_t>(0, 1000);
    const auto indices = *rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange(0u, 1u << 31));
    auto moved = indices;
    std::reverse(moved.begin(), moved.end());
    const uint64_t stride = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 32);
    const uint64_t offset = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << 32);
    const Result<Plan> plan = Plan::paged(page_bytes, {indices, stride, offset},
                                          {moved, stride + 1, 5}, kUnlimited, kUnlimited, slicing);
    RC_ASSERT(plan.ok());
    RC_ASSERT(plan.value().slice_count() ==
              immediates_of_pages(page_bytes, indices.size(), slicing));
    uint64_t next = 0;
    for (uint64_t i = 0; i < plan.value().slice_count(); ++i) {
      const Slice slice = plan.value().slice(i);
      const uint64_t page = next / page_bytes, within = next % page_bytes;
      RC_ASSERT(slice.source_offset_bytes == offset + indices[page] * stride + within);
      RC_ASSERT(slice.target_offset_bytes == 5 + moved[page] * (stride + 1) + within);
      RC_ASSERT(within + slice.size_bytes <= page_bytes);
      next += slice.size_bytes;
    }
    RC_ASSERT(next == page_bytes * indices.size());
  });
}

TEST(Plan, WhatLiesOutsideIsAnErrorThatNamesThePage) {
  const Slicing slicing;
  const auto paged = [&](Pages source, Pages target) {
    return Plan::paged(100, std::move(source), std::move(target), 1000, 1000, slicing).status();
  };
  EXPECT_TRUE(paged({{0, 9}, 100, 0}, {{8, 1}, 100, 100}).ok());
  EXPECT_EQ(paged({{0, 9}, 100, 1}, {{0, 1}, 100, 0}).message(),
            "page 1 of the source, index 9, lies outside its 1000 bytes");
  EXPECT_FALSE(paged({{0}, 0, 0}, {{10}, 100, 0}).ok());
  EXPECT_FALSE(paged({{0}, 0, 0}, {{4}, uint64_t{1} << 62, 0}).ok()) << "index * stride wraps";
  EXPECT_FALSE(paged({{0}, 0, 0}, {{1}, kUnlimited, 1}).ok()) << "the offset wraps";
  EXPECT_FALSE(paged({{0}, 0, 0}, {{0, 1}, 100, 0}).ok()) << "lists of different lengths";
  EXPECT_FALSE(Plan::single({0, 1, 1000}, 1000, 1000, slicing).ok());
  EXPECT_FALSE(Plan::single({kUnlimited, 0, 2}, 1000, 1000, slicing).ok());
}

}  // namespace
}  // namespace braid::fabric
