#include "base/clock.h"

#include <ctime>

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

}  // namespace braid
