// Whether large writes take the way to a peer over one further endpoint (endpoints.h). After a
// failure it rests for some writes, and after each further one for twice as many: the way over the
// first endpoint may be whole. It counts writes, since nobody here has a clock. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid::fabric {

class WayHealth {
 public:
  static constexpr uint32_t kRestMin = 64;
  static constexpr uint32_t kRestMax = 1 << 16;

  /// Asked once for each write.
  bool rests() {
    const bool does = rest_ > 0;
    rest_ -= does ? 1 : 0;
    return does;
  }
  /// A write that took it.
  void ended(bool ok) {
    if (!ok) rest_ = next_rest_;
    next_rest_ = ok ? kRestMin : std::min(2 * next_rest_, kRestMax);
  }

 private:
  uint32_t rest_ = 0;
  uint32_t next_rest_ = kRestMin;
};

}  // namespace braid::fabric
