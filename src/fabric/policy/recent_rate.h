// How many bytes a second have passed lately: over the last half second, older ones fading out.
// Pure: whoever counts brings the time.
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

  /// Of the window before, as much counts as the current one has not passed yet.
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
