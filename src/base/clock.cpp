#include "base/clock.h"

#include <ctime>
#include <limits>

namespace braid {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;

class SystemClock final : public Clock {
 public:
  uint64_t now_ns() override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
  }
  bool is_common() const override { return true; }
};

}  // namespace

Clock& system_clock() {
  static SystemClock clock;
  return clock;
}

uint64_t monotonic_after_ns(uint64_t limit_us) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const uint64_t now_ns = monotonic_ns();
  return limit_us > (kMax - now_ns) / 1000 ? kMax : now_ns + limit_us * 1000;
}

}  // namespace braid
