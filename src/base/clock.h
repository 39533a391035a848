// The clock of braid: the second of its three seams. On hardware it is CLOCK_MONOTONIC, on the
// emulated server the server's virtual time. May be called from any thread; cannot fail.
#pragma once

#include <cstdint>

namespace braid {

class Clock {
 public:
  /// Nanoseconds since some fixed point; never goes back for the calling thread.
  virtual uint64_t now_ns() = 0;
  /// True if all processes of the host read the same time.
  virtual bool is_common() const { return false; }

 protected:
  ~Clock() = default;  // clocks live as long as the process; none is owned through this class
};

/// CLOCK_MONOTONIC.
Clock& system_clock();
inline uint64_t monotonic_ns() { return system_clock().now_ns(); }
/// The time `limit_us` microseconds from now; the last possible time if that overflows.
uint64_t monotonic_after_ns(uint64_t limit_us);

}  // namespace braid
