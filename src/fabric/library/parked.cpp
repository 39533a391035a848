#include "fabric/library/parked.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "base/clock.h"

namespace braid::fabric {
namespace {

/// Who is awake takes a CPU from who is waited for, unless there are several.
constexpr uint64_t kAwakeNs = 20'000;
constexpr int kCpusMin = 4;

uint64_t awake_ns() {
  static const uint64_t ns = [] {
    cpu_set_t cpus;
    const bool is_known = sched_getaffinity(0, sizeof cpus, &cpus) == 0;
    return is_known && CPU_COUNT(&cpus) < kCpusMin ? 0 : kAwakeNs;
  }();
  return ns;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

bool Parked::await_awake(uint64_t end_ns) {
  const uint64_t until_ns = std::min(end_ns, monotonic_ns() + awake_ns());
  do {
    for (int i = 0; i < 32; ++i) {
      if (is_released()) return true;
      pause();
    }
  } while (monotonic_ns() < until_ns);
  return is_released();
}

bool Parked::await(uint64_t end_ns) {
  if (await_awake(end_ns)) return true;
  uint32_t awake = kAwake;
  if (!state_.compare_exchange_strong(awake, kAsleep, std::memory_order_acquire)) return true;
  while (!is_released()) {
    timespec left{};
    if (end_ns != ~uint64_t{0}) {
      const uint64_t now_ns = monotonic_ns();
      uint32_t asleep = kAsleep;
      if (now_ns >= end_ns)
        return !state_.compare_exchange_strong(asleep, kAwake, std::memory_order_acquire);
      left.tv_sec = static_cast<time_t>((end_ns - now_ns) / 1'000'000'000);
      left.tv_nsec = static_cast<long>((end_ns - now_ns) % 1'000'000'000);
    }
    syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kAsleep,
            end_ns != ~uint64_t{0} ? &left : nullptr, nullptr, 0);
  }
  return true;
}

// The object may be gone as soon as its state says so: only its address is used then, for which
// nobody, or somebody who looks again, is woken.
void Parked::release() {
  if (state_.exchange(kReleased, std::memory_order_acq_rel) == kAsleep)
    syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace braid::fabric
