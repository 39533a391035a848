// What is known of a rail or of a path: its rate, what is in flight there, and what other processes
// leave of it; and what each slice that lands says of that. Pure: the caller passes the time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transfer/policy/rail_rate.h"

namespace braid::transfer {

/// A thing with a rate: a rail or a path.
struct Lane {
  explicit Lane(double gbps) : rate(gbps), nominal_gbps(gbps) {}

  RailRate rate;
  double nominal_gbps;
  double share = 1;
  double pace_gbps = 0;       // 0: none
  double pace_ns = 0;         // when the pace allows the next slice
  uint64_t bytes = 0;         // in flight
  uint64_t urgent_bytes = 0;  // of those
  uint64_t begun_ns = 0;      // about when the slices in flight began to be sent
  /// The measured rate is what other processes leave. It is limited by our pace or by our share.
  double gbps(uint64_t now_ns) const {
    const double measured = rate.at(now_ns, bytes == 0);
    if (pace_gbps > 0) return std::min(measured, pace_gbps);
    return share < 1 ? std::min(measured, nominal_gbps * share) : measured;
  }
  /// The part of the window that applies: where a pace limits the lane, the whole window.
  double window_part() const { return pace_gbps > 0 ? 1 : share; }
  /// A process that other processes held back may catch up a little.
  void keep_pace(uint64_t size_bytes, uint64_t now_ns) {
    constexpr double kCatchUpNs = 2e6;
    if (pace_gbps <= 0) return;
    pace_ns = std::max(pace_ns, static_cast<double>(now_ns) - kCatchUpNs) +
              static_cast<double>(size_bytes) / pace_gbps;
  }
  bool is_held(uint64_t now_ns) const {
    return pace_gbps > 0 && pace_ns > static_cast<double>(now_ns);
  }
  /// About when all bytes in flight will have been sent.
  double sent_ns(uint64_t now_ns) const {
    return static_cast<double>(begun_ns) + static_cast<double>(bytes) / gbps(now_ns);
  }
  /// A slice has landed, and was not late. `base_ns`: the base latency of its path, which has heard
  /// of the slice already (`measure_base`).
  void delivered(uint64_t size_bytes, uint64_t posted_ns, double base_ns, uint64_t now_ns) {
    rate.delivered(size_bytes, posted_ns, base_ns, now_ns);
    // The slice's last byte left one base latency ago, and the next slice followed it.
    begun_ns = std::max(begun_ns, now_ns - std::min(now_ns, static_cast<uint64_t>(base_ns)));
  }
};

/// What such a slice says of the base latency of its path. `lane`: the path's, before it has heard
/// of the slice.
inline void measure_base(BaseLatency& base, const Lane& lane, uint64_t size_bytes,
                         uint64_t posted_ns, uint64_t now_ns) {
  const double took_ns = static_cast<double>(now_ns - posted_ns);
  const bool was_alone = lane.rate.ended_ns() <= posted_ns;
  // If its bytes took most of the time, the difference says more of the rate's error. Until the
  // rate is measured, that may be true of every large slice.
  const double sending_ns = static_cast<double>(size_bytes) / lane.gbps(now_ns);
  if (!was_alone || sending_ns >= took_ns / 2) return;
  if (size_bytes < RailRate::kTellingBytes)
    base.add(took_ns - sending_ns, now_ns);
  else
    base.add_if_less(took_ns - sending_ns, now_ns);
}

}  // namespace braid::transfer
