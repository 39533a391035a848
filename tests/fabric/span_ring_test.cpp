// Spans of a ring never overlap, and room that was given back is found again.
#include "fabric/staged/span_ring.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace braid::fabric::staged {
namespace {

TEST(SpanRingTest, SpansThatAreTakenNeverOverlap) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr uint64_t kBytes = 64 << 10;
  SpanRing ring(kBytes);
  struct Taken {
    uint64_t begin, end;
  };
  std::map<uint64_t, Taken> taken;  // by number
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t size_bytes = 1 + random() % (kBytes / 4);
    if (random() % 2 == 0) {
      const bool has_room = ring.has_room(size_bytes);
      const auto span = ring.take(size_bytes);
      ASSERT_EQ(has_room, span.has_value());
      if (!span) continue;
      ASSERT_LE(span->offset_bytes + size_bytes, kBytes);
      for (const auto& [number, other] : taken)
        ASSERT_TRUE(span->offset_bytes + size_bytes <= other.begin ||
                    span->offset_bytes >= other.end);
      taken[span->number] = {span->offset_bytes, span->offset_bytes + size_bytes};
    } else if (!taken.empty()) {
      const auto which = std::next(taken.begin(), static_cast<ptrdiff_t>(random() % taken.size()));
      ring.give_back(which->first);
      taken.erase(which);
    }
  }
  for (const auto& [number, span] : taken) ring.give_back(number);
  EXPECT_TRUE(ring.take(kBytes)) << "all of it is free again";
}

}  // namespace
}  // namespace braid::fabric::staged
