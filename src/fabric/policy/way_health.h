// Whether large writes take the way to a peer over one further endpoint (endpoints.h). It counts
// writes, since nobody here has a clock. Pure.
//
// After a failure the way rests for some writes, and after each further one for twice as many: the
// first endpoint's connection, which may still work, carries them meanwhile. What fails while it
// rests is of the same break. After kBreaksMax breaks without a success in between it is not taken
// any more, since each trial may fail a write of the user's. A way on which nothing ends, although
// other ways go on, rests until something ends there.
#pragma once

#include <cstdint>

namespace braid::fabric {

class WayHealth {
 public:
  static constexpr uint32_t kRestWrites = 64;  // after the first break
  static constexpr uint32_t kBreaksMax = 4;
  static constexpr uint32_t kSilentWrites = 512;

  /// Asked once for each write that looks for a way.
  bool rests() {
    if (breaks_ >= kBreaksMax || silence_ >= kSilentWrites) return true;
    if (rest_ == 0) return false;
    --rest_;
    return true;
  }
  void posted() { ++under_way_; }
  /// A write that took this way.
  void ended(bool ok) {
    --under_way_;
    silence_ = 0;
    if (ok) {
      breaks_ = 0;
    } else if (rest_ == 0) {
      rest_ = kRestWrites << breaks_++;
    }
  }
  /// A large write to the same peer has ended well, which took another way.
  void other_ended() { silence_ = under_way_ > 0 ? silence_ + 1 : 0; }

 private:
  uint32_t under_way_ = 0;
  uint32_t rest_ = 0;     // writes
  uint32_t breaks_ = 0;   // since the last success
  uint32_t silence_ = 0;  // writes that have ended on other ways
};

}  // namespace braid::fabric
