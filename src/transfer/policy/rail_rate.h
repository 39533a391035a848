// The speed of a rail: its rate, which is the bytes that it delivers per time in which it is busy,
// and its base latency, which is the least time that a write takes. Pure: the caller passes the
// time.
//
// The time that a slice waits behind others says nothing about the base latency, and the time of a
// short write says nothing about the rate. So a slice that was queued behind another one is a
// sample of the rate, over the time since the other one ended. A slice that was alone only shows
// that the rate is at least its bytes divided by its time, or, if it took far longer than expected,
// that the rate is lower. A rate is in bytes per nanosecond, which is GB/s.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace braid::transfer {

/// The least latency of the last one to two windows.
class BaseLatency {
 public:
  static constexpr uint64_t kWindowNs = 10'000'000'000;

  explicit BaseLatency(double guess_ns) : guess_ns_(guess_ns) {}
  void add(double sample_ns, uint64_t now_ns) {
    if (now_ns - begun_ns_ >= kWindowNs) {
      before_ns_ = now_ns - begun_ns_ < 2 * kWindowNs ? latest_ns_ : kNone;
      latest_ns_ = kNone;
      begun_ns_ = now_ns;
    }
    latest_ns_ = std::min(latest_ns_, std::max(0.0, sample_ns));
  }
  /// Adds a sample that may be too large for another reason.
  void add_if_less(double sample_ns, uint64_t now_ns) {
    if (sample_ns < ns()) add(sample_ns, now_ns);
  }
  /// Something was measured, and it was no better than the guess.
  bool is_above_guess() const { return ns() > guess_ns_; }
  double ns() const {
    const double least = std::min(before_ns_, latest_ns_);
    return least == kNone ? guess_ns_ : least;
  }

 private:
  static constexpr double kNone = 1e18;
  double guess_ns_;
  double before_ns_ = kNone;
  double latest_ns_ = kNone;
  uint64_t begun_ns_ = 0;
};

class RailRate {
 public:
  /// Older samples fade out over this busy time, or over about four slices if that is longer.
  static constexpr double kMemoryNs = 1e6;
  /// Shorter slices are no samples when they are alone.
  static constexpr uint64_t kTellingBytes = 16 << 10;
  /// A rail that is idle for this long counts as nominal again: it may have been mended, and
  /// nothing else would show that.
  static constexpr double kForgottenNs = 2e9;

  /// `nominal`: the rate until one is measured, above 0.
  explicit RailRate(double nominal)
      : nominal_(nominal), bytes_(nominal * kMemoryNs / 4), busy_ns_(kMemoryNs / 4) {}

  /// A slice has been delivered. `base_ns`: the base latency of its path.
  void delivered(uint64_t size_bytes, uint64_t posted_ns, double base_ns, uint64_t now_ns) {
    const double took_ns = static_cast<double>(now_ns - posted_ns);
    const bool was_queued =
        has_ended_ && static_cast<double>(posted_ns) + base_ns <= static_cast<double>(ended_ns_);
    if (was_queued) {
      add(size_bytes, static_cast<double>(now_ns - ended_ns_));
    } else if (size_bytes >= kTellingBytes) {
      const double bytes = static_cast<double>(size_bytes);
      const double rate = measured();
      const double rest_ns = std::max(1.0, took_ns - base_ns);
      if (bytes > rate * took_ns)
        add(size_bytes, std::max(1.0, took_ns));
      else if (bytes < rate / 2 * rest_ns)
        add(size_bytes, rest_ns);
    }
    has_ended_ = true;
    ended_ns_ = now_ns;
  }

  /// A slice is overdue after `waited_ns`: the rate is at most its bytes divided by that time.
  void overdue(uint64_t size_bytes, uint64_t waited_ns) {
    const double bytes = static_cast<double>(size_bytes), ns = static_cast<double>(waited_ns);
    if (bytes / ns >= measured()) return;
    bytes_ = bytes;
    busy_ns_ = ns;
  }

  double at(uint64_t now_ns, bool is_idle) const {
    const double rate = measured();
    if (!is_idle || !has_ended_ || rate >= nominal_) return rate;
    const double idle_ns = static_cast<double>(now_ns - std::min(now_ns, ended_ns_));
    return rate + (nominal_ - rate) * std::min(1.0, idle_ns / kForgottenNs);
  }
  uint64_t ended_ns() const { return ended_ns_; }

 private:
  // Never 0: Health judges a rail that stands still.
  double measured() const { return std::max(bytes_ / busy_ns_, nominal_ * 1e-4); }
  void add(uint64_t size_bytes, double took_ns) {
    const double fade = std::exp(-std::min(0.25, took_ns / kMemoryNs));
    bytes_ = bytes_ * fade + static_cast<double>(size_bytes);
    busy_ns_ = busy_ns_ * fade + took_ns;
  }

  double nominal_;
  double bytes_;
  double busy_ns_;
  bool has_ended_ = false;
  uint64_t ended_ns_ = 0;
};

}  // namespace braid::transfer
