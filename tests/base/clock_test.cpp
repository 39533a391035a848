#include "base/clock.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(SystemClock, SleepsAtLeastAsLongAsItIsTold) {
  Clock& clock = system_clock();
  const uint64_t before = clock.now_ns();
  clock.hold();
  clock.sleep_ns(2'000'000);
  clock.release();
  EXPECT_GE(clock.now_ns() - before, 2'000'000u);
  clock.sleep_ns(0);
}

}  // namespace
}  // namespace braid
