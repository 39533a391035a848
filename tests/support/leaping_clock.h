// The server's clock, which a test can set ahead.
#pragma once

#include "base/clock.h"

namespace braid::test {

class LeapingClock final : public Clock {
 public:
  explicit LeapingClock(Clock& clock) : clock_(clock) {}
  uint64_t now_ns() override { return clock_.now_ns() + leapt_ns; }
  uint64_t leapt_ns = 0;

 private:
  Clock& clock_;
};

}  // namespace braid::test
