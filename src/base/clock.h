// The clock that braid looks at: the second of its three seams. On hardware it is CLOCK_MONOTONIC;
// on the emulated server it is the server's virtual time. From any thread; it cannot fail.
#pragma once

#include <cstdint>

namespace braid {

class Clock {
 public:
  /// Nanoseconds since some fixed point; the calling thread never sees it go back.
  virtual uint64_t now_ns() = 0;
  /// All processes of the host read the same time.
  virtual bool is_common() const { return false; }

 protected:
  ~Clock() = default;  // clocks live as long as the process; nobody owns one through this class
};

/// CLOCK_MONOTONIC.
Clock& system_clock();
inline uint64_t monotonic_ns() { return system_clock().now_ns(); }
/// So many microseconds from now; where that is beyond all times, the last one.
uint64_t monotonic_after_ns(uint64_t limit_us);

}  // namespace braid
