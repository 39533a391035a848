// Health judges whether a NIC or a pair of NICs works. Pure: its caller reports events with their
// times, and it says how much may be posted there and when to probe.
//
//   up --overdue or failed--> suspect --a probe--> rejoining --clean rounds--> up
//                                |                    |
//                        two probes lost,         overdue or
//                           or a failure            failed
//                                v                    v
//                              down <-----------------+
//                     (probing at 10, 20, 40 … ms) --a probe--> rejoining
//
// Failures are forgotten slowly and never reset: a path that soon fails again is probed after a
// longer pause.
// Source: TENT, 3.4.1, whose public code pauses a rail for 120 s.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace braid::transfer {

enum class PathState : uint8_t { kUp, kSuspect, kDown, kProbing, kRejoining };

constexpr const char* state_name(PathState state) {
  switch (state) {
    case PathState::kUp: return "up";
    case PathState::kSuspect: return "suspect";
    case PathState::kDown: return "down";
    case PathState::kProbing: return "probing";
    case PathState::kRejoining: return "rejoining";
  }
  return "unknown";
}

class Health {
 public:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  static constexpr uint64_t kPauseMinNs = 10'000'000;
  /// The longest pause while requests want this path, and while none does.
  static constexpr uint64_t kPauseMaxWantedNs = 160'000'000;
  static constexpr uint64_t kPauseMaxNs = 1'000'000'000;
  static constexpr uint64_t kProbeLateNs = 5'000'000;
  /// After each such time of working, half of the failures are forgotten.
  static constexpr uint64_t kForgetNs = 1'000'000'000;
  static constexpr uint32_t kRejoiningSlices = 2;
  static constexpr uint32_t kRoundsUntilUp = 5;

  PathState state() const { return state_; }
  bool is_usable() const { return state_ == PathState::kUp || state_ == PathState::kRejoining; }
  /// How many slices may be in flight. The largest uint32_t: as many as the rate allows.
  uint32_t window_slices() const {
    return state_ == PathState::kRejoining ? kRejoiningSlices << rounds_
                                           : std::numeric_limits<uint32_t>::max();
  }

  /// A posting is overdue. `jitter` in [0, 1) lengthens the pause before the next probe.
  void overdue(uint64_t now_ns, double jitter) { trouble(false, now_ns, jitter); }
  void failed(uint64_t now_ns, double jitter) { trouble(true, now_ns, jitter); }
  /// The caller knows that the path is down.
  void go_down(uint64_t now_ns, double jitter) {
    if (state_ == PathState::kDown || state_ == PathState::kProbing) return;
    failures_ = std::min(failures_at(now_ns) + 1, kFailuresMax);
    state_ = PathState::kDown;
    pause_ns_ = kPauseMinNs << std::min(failures_ - 1, 7u);
    set_due(now_ns, jitter);
  }
  /// Ends the pause: a probe is due now. A probe that is out no longer counts. False: the path is
  /// not down.
  bool probe_now(uint64_t now_ns) {
    if (state_ != PathState::kDown && state_ != PathState::kProbing) return false;
    state_ = PathState::kDown;
    is_probe_out_ = false;
    due_ns_ = wanted_ns_ = now_ns;
    return true;
  }
  /// A posting has ended well. A round is as many postings as may be in flight.
  void delivered(uint64_t now_ns) {
    if (state_ != PathState::kRejoining || ++clean_ < window_slices()) return;
    clean_ = 0;
    if (++rounds_ < kRoundsUntilUp) return;
    state_ = PathState::kUp;
    up_since_ns_ = now_ns;
  }

  /// `is_wanted`: requests want this path.
  bool wants_probe(uint64_t now_ns, bool is_wanted) const {
    return !is_probe_out_ && probe_ns(is_wanted) <= now_ns;
  }
  /// When the next probe or `check` is due.
  uint64_t next_ns(bool is_wanted) const { return is_probe_out_ ? late_ns_ : probe_ns(is_wanted); }
  void probe_begun(uint64_t now_ns, uint64_t late_after_ns) {
    is_probe_out_ = true;
    late_ns_ = now_ns + std::max(kProbeLateNs, late_after_ns);
    if (state_ == PathState::kDown) state_ = PathState::kProbing;
  }
  /// Counts a late probe as lost. True: it has just been lost.
  bool check(uint64_t now_ns, double jitter) {
    if (!is_probe_out_ || now_ns < late_ns_) return false;
    probe_ended(false, now_ns, jitter);
    return true;
  }
  void probe_ended(bool ok, uint64_t now_ns, double jitter) {
    is_probe_out_ = false;
    if (ok) return rejoin();
    if (state_ == PathState::kSuspect) {
      if (++lost_ >= 2) return go_down(now_ns, jitter);
      due_ns_ = now_ns;
      return;
    }
    state_ = PathState::kDown;
    pause_ns_ = std::min(2 * pause_ns_, kPauseMaxNs);
    set_due(now_ns, jitter);
  }
  /// A probe that was counted as lost has been answered: the path works. A probe that is out no
  /// longer counts. False: the path is in use already.
  bool answered_late() {
    if (is_usable()) return false;
    is_probe_out_ = false;
    rejoin();
    return true;
  }
  bool is_probe_out() const { return is_probe_out_; }

 private:
  static constexpr uint32_t kFailuresMax = 10;

  void trouble(bool has_failed, uint64_t now_ns, double jitter) {
    if (state_ == PathState::kRejoining || (has_failed && state_ == PathState::kSuspect))
      return go_down(now_ns, jitter);
    if (state_ != PathState::kUp) return;
    failures_ = failures_at(now_ns);
    up_since_ns_ = now_ns;
    state_ = PathState::kSuspect;
    lost_ = 0;
    due_ns_ = wanted_ns_ = now_ns;
  }
  void rejoin() {
    state_ = PathState::kRejoining;
    rounds_ = clean_ = 0;
  }
  uint32_t failures_at(uint64_t now_ns) const {
    if (state_ != PathState::kUp) return failures_;
    return failures_ >> std::min<uint64_t>((now_ns - up_since_ns_) / kForgetNs, 31);
  }
  void set_due(uint64_t now_ns, double jitter) {
    const auto later = [&](uint64_t pause_ns) {
      return now_ns + pause_ns + static_cast<uint64_t>(static_cast<double>(pause_ns) * jitter / 4);
    };
    due_ns_ = later(pause_ns_);
    wanted_ns_ = later(std::min(pause_ns_, kPauseMaxWantedNs));
  }
  uint64_t probe_ns(bool is_wanted) const {
    if (is_usable()) return kNever;
    return state_ != PathState::kSuspect && is_wanted ? wanted_ns_ : due_ns_;
  }

  PathState state_ = PathState::kUp;
  bool is_probe_out_ = false;
  uint32_t failures_ = 0;
  uint32_t lost_ = 0;    // probes lost since the path became suspect
  uint32_t rounds_ = 0;  // clean rounds since the path began to rejoin
  uint32_t clean_ = 0;   // slices delivered in this round
  uint64_t pause_ns_ = kPauseMinNs;
  uint64_t due_ns_ = 0;
  uint64_t wanted_ns_ = 0;  // as due_ns_, while requests want the path
  uint64_t late_ns_ = 0;
  uint64_t up_since_ns_ = 0;
};

/// Whether a NIC is at fault rather than one of its pairs: several of its pairs are in trouble, and
/// none has delivered anything since the first of them got into trouble.
struct NicRecord {
  uint32_t pairs_in_trouble = 0;
  uint64_t trouble_since_ns = 0;
  uint64_t delivered_ns = 0;
};
inline bool is_nic_at_fault(const NicRecord& nic) {
  return nic.pairs_in_trouble >= 2 && nic.delivered_ns <= nic.trouble_since_ns;
}

}  // namespace braid::transfer
