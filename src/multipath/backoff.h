// How long to leave an obstacle alone. The time doubles each time that the obstacle is found again
// soon after a retry. It returns to the first length after a long time without the obstacle.
//
// Threads: any; nothing locks. A lost update does no harm.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace braid::multipath {

class Backoff {
 public:
  static constexpr uint64_t kFirstNs = 2'000'000'000;
  static constexpr uint64_t kMostNs = 16 * kFirstNs;
  /// After so many times the last length, the obstacle counts as new.
  static constexpr uint64_t kSoon = 8;

  bool is_active(uint64_t now_ns) const { return now_ns < until_ns_; }
  void start(uint64_t now_ns) {
    const uint64_t length_ns = next_length_ns(now_ns);
    length_ns_ = length_ns;
    until_ns_ = now_ns + length_ns;
  }

 private:
  uint64_t next_length_ns(uint64_t now_ns) const {
    if (is_active(now_ns)) return length_ns_;
    const bool is_soon = length_ns_ != 0 && now_ns < until_ns_ + kSoon * length_ns_;
    return is_soon ? std::min(2 * length_ns_, kMostNs) : kFirstNs;
  }

  std::atomic<uint64_t> until_ns_{0};
  std::atomic<uint64_t> length_ns_{0};
};

}  // namespace braid::multipath
