// How long something is left alone that was found in the way: twice as long each time that it is
// found soon after it was tried again, and as at first when it has been out of the way for long.
//
// Threads: any; nothing locks. An update that is lost does no harm.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace braid::multipath {

class Backoff {
 public:
  static constexpr uint64_t kFirstNs = 2'000'000'000;
  static constexpr uint64_t kMostNs = 16 * kFirstNs;
  /// Found after so many times the last length, it is new again.
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
