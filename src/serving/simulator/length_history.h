// Estimates the length of a request from past requests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace braid::serving {

class LengthHistory {
 public:
  void add(uint32_t output_tokens) {
    ++counts_[bucket_of(output_tokens)];
    sums_[bucket_of(output_tokens)] += output_tokens;
    if (++added_ % kRefresh == 0) refresh();
  }

  /// The mean length of past requests that were longer than this. A guess if none is known, or
  /// beyond the longest.
  uint32_t expected(uint32_t generated_tokens) const {
    const size_t bucket = bucket_of(generated_tokens) + 1;
    if (bucket >= kBuckets || longer_[bucket].count == 0)
      return std::max(kGuess, generated_tokens + kGuess / 4);
    return static_cast<uint32_t>(longer_[bucket].sum / longer_[bucket].count);
  }

 private:
  static constexpr uint32_t kGuess = 256, kBucketTokens = 16, kRefresh = 32;
  static constexpr size_t kBuckets = 512;
  struct Longer {
    uint64_t count = 0, sum = 0;
  };

  static size_t bucket_of(uint32_t tokens) {
    return std::min<size_t>(tokens / kBucketTokens, kBuckets - 1);
  }
  void refresh() {
    Longer longer;
    for (size_t bucket = kBuckets; bucket-- > 0;) {
      longer.count += counts_[bucket];
      longer.sum += sums_[bucket];
      longer_[bucket] = longer;
    }
  }

  std::array<uint64_t, kBuckets> counts_{}, sums_{};
  std::array<Longer, kBuckets> longer_{};  // of this bucket and later ones
  uint64_t added_ = 0;
};

}  // namespace braid::serving
