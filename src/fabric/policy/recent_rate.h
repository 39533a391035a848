// The recent rate in bytes per second: over the last half second, with older bytes fading out.
// Pure: the caller brings the time.
#pragma once

#include <cstdint>

namespace braid::fabric {

class RecentRate {
 public:
  static constexpr uint64_t kWindowNs = 500'000'000;

  void add(uint64_t bytes, uint64_t now_ns) {
    roll(now_ns);
    bytes_ += bytes;
  }

  /// The previous window counts by the fraction of the current one that is still to come.
  uint64_t bytes_per_s(uint64_t now_ns) const {
    RecentRate at = *this;
    at.roll(now_ns);
    const double left = 1 - static_cast<double>(now_ns - at.begun_ns_) / kWindowNs;
    const double bytes = static_cast<double>(at.before_) * left + static_cast<double>(at.bytes_);
    return static_cast<uint64_t>(bytes * 1e9 / kWindowNs);
  }

 private:
  void roll(uint64_t now_ns) {
    const uint64_t windows = (now_ns - begun_ns_) / kWindowNs;
    if (windows == 0) return;
    before_ = windows == 1 ? bytes_ : 0;
    bytes_ = 0;
    begun_ns_ += windows * kWindowNs;
  }

  uint64_t begun_ns_ = 0;
  uint64_t bytes_ = 0;
  uint64_t before_ = 0;
};

}  // namespace braid::fabric
