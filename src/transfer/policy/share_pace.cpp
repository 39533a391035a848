#include "transfer/policy/share_pace.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace braid::transfer {
namespace {

// Slices come in lumps: a window holds many of them, on slow rails too.
constexpr uint64_t kWindowNsMin = 5'000'000;
constexpr uint64_t kWindowNsMax = 50'000'000;
constexpr uint64_t kWindowBytes = 4 << 20;
constexpr double kRateMemoryNs = 50e6;
constexpr uint64_t kForgetNs = 10'000'000'000;
constexpr uint64_t kRecentNs = 20'000'000;
constexpr uint64_t kTrialNs = 150'000'000;   // what is delivered follows the pace meanwhile
constexpr uint64_t kRestNs = 2'000'000'000;  // between trials
constexpr double kUsed = 0.7;                // of its part, by whoever is not held back elsewhere
constexpr double kGain = 1.1;
// Who is held back elsewhere: more, and what it does not use would be lost to all.
constexpr ShareRules kRules = {.headroom = 1.1};

bool is_recent(uint64_t when_ns, uint64_t span_ns, uint64_t now_ns) {
  return when_ns != 0 && now_ns - std::min(now_ns, when_ns) < span_ns;
}

}  // namespace

ShareTold SharePace::tell(const RailUse& use, uint64_t now_ns) {
  const auto bytes =
      static_cast<double>(use.delivered_bytes - std::exchange(told_bytes_, use.delivered_bytes));
  const uint64_t told_ns = std::exchange(told_ns_, now_ns);
  if (told_ns != 0 && now_ns > told_ns) {
    const auto took_ns = static_cast<double>(now_ns - told_ns);
    rate_gbps_ += (bytes / took_ns - rate_gbps_) * (1 - std::exp(-took_ns / kRateMemoryNs));
  }
  if (!use.is_active) return {};
  if (use.is_full) {
    if (!is_recent(full_ns_, kTrialNs, now_ns)) {  // it begins
      wants_part_ = true;
      judged_ns_ = now_ns;
    }
    full_ns_ = now_ns;
  }
  if (!is_recent(full_ns_, kRecentNs, now_ns)) return {rate_gbps_, true, false, false};
  return {rate_gbps_, true, true, wants_even_part(now_ns)};
}

bool SharePace::wants_even_part(uint64_t now_ns) {
  if (is_recent(judged_ns_, wants_part_ ? kTrialNs : kRestNs, now_ns)) return wants_part_;
  const bool is_used = rate_gbps_ >= kUsed * part_gbps_;
  if (wants_part_ && is_used) return true;
  wants_part_ = !wants_part_;
  judged_ns_ = now_ns;
  return wants_part_;
}

RailShare SharePace::decide(const ShareHeard& heard, uint64_t now_ns) {
  if (heard.rows.size() < 2) {
    is_measuring_ = false;
    part_gbps_ = 0;
    return {};
  }
  measure(heard, now_ns);
  const double capacity = capacity_gbps(now_ns);
  if (capacity <= 0) return {1 / static_cast<double>(heard.rows.size()), 0};
  const double share = share_of(heard.rows, heard.mine, capacity, now_ns, kRules);
  part_gbps_ = capacity / static_cast<double>(heard.rows.size());
  return {share, share * capacity * kGain};
}

void SharePace::measure(const ShareHeard& heard, uint64_t now_ns) {
  const uint64_t took_ns = now_ns - std::min(now_ns, begun_ns_);
  const uint64_t bytes = heard.delivered_bytes - std::min(heard.delivered_bytes, begun_bytes_);
  const bool goes_on = is_measuring_ && heard.is_full && heard.members == members_;
  const bool is_whole =
      took_ns >= kWindowNsMax || (took_ns >= kWindowNsMin && bytes >= kWindowBytes);
  if (goes_on && !is_whole) return;
  if (goes_on && bytes > 0)
    windows_[next_++ % windows_.size()] = {
        now_ns, static_cast<double>(bytes) / static_cast<double>(took_ns)};
  is_measuring_ = heard.is_full;
  members_ = heard.members;
  begun_ns_ = now_ns;
  begun_bytes_ = heard.delivered_bytes;
}

double SharePace::capacity_gbps(uint64_t now_ns) const {
  double most = 0;
  for (const Window& window : windows_)
    if (is_recent(window.ended_ns, kForgetNs, now_ns)) most = std::max(most, window.gbps);
  return most;
}

}  // namespace braid::transfer
