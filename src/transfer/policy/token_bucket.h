// Limits how often something happens: so many at once, and then so many a second. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace braid::transfer {

class TokenBucket {
 public:
  TokenBucket(double burst, double per_second)
      : burst_(burst), per_ns_(per_second / 1e9), tokens_(burst) {}

  /// False: not before `next_ns`.
  bool take(uint64_t now_ns) {
    if (now_ns > filled_ns_) {
      tokens_ = std::min(burst_, tokens_ + static_cast<double>(now_ns - filled_ns_) * per_ns_);
      filled_ns_ = now_ns;
    }
    if (tokens_ < 1) return false;
    --tokens_;
    return true;
  }
  /// When the next one may be taken.
  uint64_t next_ns() const {
    return tokens_ >= 1 ? filled_ns_
                        : filled_ns_ + static_cast<uint64_t>((1 - tokens_) / per_ns_) + 1;
  }

 private:
  double burst_, per_ns_, tokens_;
  uint64_t filled_ns_ = 0;
};

}  // namespace braid::transfer
