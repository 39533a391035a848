// MMA section 5.1.2, figure 10: links shared with native copies and with a second engine.
#include <algorithm>

#include "paper/fixture.h"

namespace braid::paper {
namespace {

class PaperFairnessTest : public PaperTest {
 protected:
  // What GPU `via` has carried so far, over its own link.
  static uint64_t carried_bytes(Engine& engine, int via) {
    uint64_t bytes = 0;
    for (const multipath::PathCount& count : engine.collect(5000))
      if (count.via == via) bytes += count.bytes;
    return bytes;
  }
};
BRAID_BOTH_MOVERS(PaperFairnessTest);

// Figure 10a. The paper's engine keeps every link's queue filled, which is `compete`. A kernel and
// the native copies halve the link. A plan's chunks are larger than these copies and stand in two
// channels, and a copy engine does one whole copy after another.
TEST_P(PaperFairnessTest, ALinkIsSharedWithNativeCopiesAndTheOthersAreNot) {
  constexpr int kShared = 1, kOther = 2;
  Options competing = options();
  competing.yields = false;
  auto engine = open_engine(competing);
  HostBuffer host(driver(), kGiB), small(driver(), kNativeCopyBytes);
  const auto to = site(0, kGiB), beside = site(kShared, kNativeCopyBytes);
  const double native_alone = gbps(32 * kNativeCopyBytes, wait_us(native(small, *beside, 32)));

  uint64_t shared_bytes = carried_bytes(*engine, kShared);
  uint64_t other_bytes = carried_bytes(*engine, kOther);
  const auto link_gbps = [&](double us, double& shared, double& other) {
    const uint64_t shared_now = carried_bytes(*engine, kShared);
    const uint64_t other_now = carried_bytes(*engine, kOther);
    shared = gbps(shared_now - shared_bytes, us);
    other = gbps(other_now - other_bytes, us);
    shared_bytes = shared_now;
    other_bytes = other_now;
  };
  double alone[2], beside_native[2];
  link_gbps(wait_us(load(*engine, host, *to, kGiB)), alone[0], alone[1]);

  // Native copies that outlast braid's, for braid's rates; then some within it, for theirs.
  const Span long_traffic = native(small, *beside, 100);
  link_gbps(wait_us(load(*engine, host, *to, kGiB / 2)), beside_native[0], beside_native[1]);
  wait_us(long_traffic);
  const Span whole = load(*engine, host, *to, kGiB);
  const double native_shared = gbps(16 * kNativeCopyBytes, wait_us(native(small, *beside, 16)));
  wait_us(whole);

  figure("figure 10a", "a fair split of the congested link, the others unaffected",
         text("native %.1f of %.1f GB/s; braid there %.1f of %.1f, on another link %.1f of %.1f",
              native_shared, native_alone, beside_native[0], alone[0], beside_native[1], alone[1]));
  if (!is_kernel()) GTEST_SKIP() << kNotMet;
  EXPECT_NEAR(native_shared / native_alone, 0.5, 0.1);
  EXPECT_NEAR(beside_native[0] / alone[0], 0.5, 0.1);
  EXPECT_GT(beside_native[1], 0.85 * alone[1]);
}

// Figure 10b. Two engines that know nothing of each other stand for two processes, since an
// emulated server lives in one process. Their targets share every link. The paper's keep every
// queue filled; engines that yield also make way for each other, so that a link is one's and then
// the other's, and leave a part unused.
TEST_P(PaperFairnessTest, TwoEnginesShareFairlyAndLoseLittle) {
  constexpr uint64_t kSize = kGiB / 2;
  HostBuffer host(driver(), kSize), other(driver(), kSize);
  const auto to = site(0, kSize), beside = site(1, kSize);
  for (const bool yields : {false, true}) {
    Options chosen = options();
    chosen.yields = yields;
    auto first = open_engine(chosen), second = open_engine(chosen);
    const double alone = gbps(kSize, wait_us(load(*first, host, *to, kSize)));
    wait_us(load(*second, other, *beside, kSize));
    const Span one = load(*first, host, *to, kSize);
    const Span two = load(*second, other, *beside, kSize);
    const double one_us = wait_us(one), two_us = wait_us(two);
    const double total = gbps(2 * kSize, std::max(one_us, two_us));
    figure(
        "figure 10b", "two flows share fairly, the total near the ideal, each above native",
        text("%s: %.1f and %.1f GB/s, together %.1f; one alone %.1f", yields ? "yield" : "compete",
             gbps(kSize, one_us), gbps(kSize, two_us), total, alone));
    EXPECT_LT(std::max(one_us, two_us), (yields ? 2 : 1.3) * std::min(one_us, two_us));
    EXPECT_GT(total, (yields ? 0.55 : 0.85) * alone);
    EXPECT_GT(gbps(kSize, std::max(one_us, two_us)), 1.5 * kNativeGbps);
  }
}

}  // namespace
}  // namespace braid::paper
