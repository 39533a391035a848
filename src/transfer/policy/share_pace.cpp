#include "transfer/policy/share_pace.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace braid::transfer {
namespace {

// Slices come in lumps, so a window must hold many of them, on slow rails too.
constexpr uint64_t kWindowNsMin = 5'000'000;
constexpr uint64_t kWindowNsMax = 50'000'000;
constexpr uint64_t kWindowBytes = 4 << 20;
constexpr double kRateMemoryNs = 50e6;
constexpr uint64_t kForgetNs = 10'000'000'000;
constexpr uint64_t kRecentNs = 20'000'000;
constexpr double kGainMin = 1.1;
constexpr double kGainGrows = 1.15, kGainFalls = 0.98;  // a window
constexpr double kAllUsed = 0.9;                        // of what the rail carries
// For processes without a backlog.
constexpr ShareRules kRules = {.headroom = 1.1};

bool is_recent(uint64_t when_ns, uint64_t span_ns, uint64_t now_ns) {
  return when_ns != 0 && now_ns - std::min(now_ns, when_ns) < span_ns;
}

}  // namespace

SharePace::SharePace() : gain_(kGainMin) {}

ShareTold SharePace::tell(const RailUse& use, uint64_t now_ns) {
  const auto bytes =
      static_cast<double>(use.delivered_bytes - std::exchange(told_bytes_, use.delivered_bytes));
  const uint64_t told_ns = std::exchange(told_ns_, now_ns);
  if (told_ns != 0 && now_ns > told_ns) {
    const auto took_ns = static_cast<double>(now_ns - told_ns);
    rate_gbps_ += (bytes / took_ns - rate_gbps_) * (1 - std::exp(-took_ns / kRateMemoryNs));
  }
  if (!use.is_active) return {};
  if (use.is_full) full_ns_ = now_ns;
  return {rate_gbps_, true, is_recent(full_ns_, kRecentNs, now_ns)};
}

RailShare SharePace::decide(const ShareHeard& heard, uint64_t now_ns) {
  if (heard.rows.size() < 2) {
    is_measuring_ = false;
    return {};
  }
  measure(heard, now_ns);
  const double capacity = capacity_gbps(now_ns);
  if (capacity <= 0) return {1 / static_cast<double>(heard.rows.size()), 0};
  const double share = share_of(heard.rows, heard.mine, capacity, now_ns, kRules);
  return {share, std::min(share * gain_, 1.0) * capacity};
}

void SharePace::measure(const ShareHeard& heard, uint64_t now_ns) {
  const uint64_t took_ns = now_ns - std::min(now_ns, begun_ns_);
  const uint64_t bytes = heard.delivered_bytes - std::min(heard.delivered_bytes, begun_bytes_);
  const bool goes_on = is_measuring_ && heard.is_full && heard.members == members_;
  const bool is_whole =
      took_ns >= kWindowNsMax || (took_ns >= kWindowNsMin && bytes >= kWindowBytes);
  if (goes_on && !is_whole) return;
  if (goes_on && bytes > 0) {
    const double gbps = static_cast<double>(bytes) / static_cast<double>(took_ns);
    const bool is_all_used = gbps >= kAllUsed * capacity_gbps(now_ns);
    gain_ = is_all_used ? std::max(kGainMin, gain_ * kGainFalls)
                        : std::min(gain_ * kGainGrows, static_cast<double>(heard.rows.size()));
    windows_[next_++ % windows_.size()] = {now_ns, gbps};
  }
  is_measuring_ = heard.is_full;
  members_ = heard.members;
  begun_ns_ = now_ns;
  begun_bytes_ = heard.delivered_bytes;
}

/// Once there are many windows, the rate of the third best: the best one or two may contain bytes
/// that had waited elsewhere.
double SharePace::capacity_gbps(uint64_t now_ns) const {
  std::array<double, 3> most{};  // falling
  size_t count = 0;
  for (const Window& window : windows_) {
    if (!is_recent(window.ended_ns, kForgetNs, now_ns)) continue;
    ++count;
    double gbps = window.gbps;
    for (double& each : most)
      if (gbps > each) std::swap(gbps, each);
  }
  return count < kWindows / 2 ? most.front() : most.back();
}

}  // namespace braid::transfer
