// A histogram of integers for percentiles: log-linear, from 1 to 2^40 (18 minutes in nanoseconds),
// with buckets no wider than 1/32 (3 %) of their values. A fixed array of relaxed atomics: adding
// neither allocates nor waits, and is safe from any thread and any signal handler.
//
// Constant-initialised. A reader beside writers sees some recent state, with each value whole.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace braid {

class Histogram {
 public:
  /// Values of 2^40 and more count as the largest value below.
  void add(uint64_t value) noexcept {
    buckets_[index_of(value)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
    uint64_t seen = max_.load(std::memory_order_relaxed);
    while (value > seen && !max_.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }

  uint64_t count() const noexcept {
    uint64_t total = 0;
    for (const auto& bucket : buckets_) total += bucket.load(std::memory_order_relaxed);
    return total;
  }
  uint64_t sum() const noexcept { return sum_.load(std::memory_order_relaxed); }
  uint64_t max() const noexcept { return max_.load(std::memory_order_relaxed); }

  /// The value that `per_mille` thousandths of the values do not exceed (500: the median), rounded
  /// up to the end of its bucket, but at most max(). 0 when empty.
  uint64_t quantile(unsigned per_mille) const noexcept {
    const uint64_t rank = std::max<uint64_t>((count() * per_mille + 999) / 1000, 1);
    uint64_t passed = 0;
    for (size_t index = 0; index < kBuckets; ++index) {
      passed += buckets_[index].load(std::memory_order_relaxed);
      if (passed >= rank) return std::min(last_of(index), max());
    }
    return max();
  }

  void clear() noexcept {
    for (auto& bucket : buckets_) bucket.store(0, std::memory_order_relaxed);
    sum_.store(0, std::memory_order_relaxed);
    max_.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr unsigned kStepBits = 5;  // 32 buckets for each doubling
  static constexpr uint64_t kSteps = uint64_t{1} << kStepBits;
  static constexpr unsigned kValueBits = 40;
  static constexpr size_t kBuckets = (kValueBits - kStepBits + 1) * kSteps;

  // Below kSteps each value has a bucket; above, each doubling is cut into kSteps buckets.
  static constexpr size_t index_of(uint64_t value) noexcept {
    value = std::min(value, (uint64_t{1} << kValueBits) - 1);
    if (value < kSteps) return value;
    const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - 1 - kStepBits;
    return shift * kSteps + (value >> shift);
  }

  // The largest value of a bucket.
  static constexpr uint64_t last_of(size_t index) noexcept {
    if (index < kSteps) return index;
    const uint64_t shift = index / kSteps - 1;
    return ((kSteps + index % kSteps + 1) << shift) - 1;
  }

  std::array<std::atomic<uint64_t>, kBuckets> buckets_{};
  std::atomic<uint64_t> sum_{0};
  std::atomic<uint64_t> max_{0};
};

}  // namespace braid
