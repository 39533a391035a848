// Whether a rail reaches a peer. Pure: from the events and their times it derives the rail's state,
// and when to try the rail again.
//
// A failed or late posting makes the rail suspect. A probe, a write of one byte without content,
// then shows whether the rail works. Slices take a worse rail only if the peer has no better one,
// so a peer's last rail is never given up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace braid::fabric {

enum class RailState : uint8_t {
  kUp,
  kSuspect,  ///< something has failed or is late; a probe will decide
  kDown,     ///< a probe has failed or is late; more follow until one succeeds
  kRetired   ///< taken out of use on purpose, here or at the peer
};

class RailHealth {
 public:
  static constexpr uint64_t kPauseMinNs = 1'000'000;
  static constexpr uint64_t kPauseMaxNs = 1'000'000'000;
  /// If a rail fails again within this time after it came back, the pause before its next probe
  /// doubles.
  static constexpr uint64_t kSteadyNs = 1'000'000'000;

  static constexpr uint64_t kRefusedNs = 100'000'000;
  static constexpr uint64_t kProbeLateNs = 1'000'000'000;
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  RailState state() const {
    return is_retired_here || is_retired_there ? RailState::kRetired : state_;
  }
  /// Slices to a peer take its rails of the lowest rank.
  unsigned rank() const { return static_cast<unsigned>(state()); }

  void suspect(uint64_t now_ns) {
    is_probe_stale_ = is_probing_;
    if (state_ != RailState::kUp) return;
    state_ = RailState::kSuspect;
    if (now_ns - up_since_ns_ >= kSteadyNs) pause_ns_ = 0;
    due_ns_ = now_ns + pause_ns_;
  }
  /// The rail has no room although nothing is under way to the peer, so it may never get room.
  /// True: it has become suspect.
  bool refused(uint64_t now_ns) {
    if (state_ != RailState::kUp) return false;
    if (refused_since_ns_ == 0) refused_since_ns_ = now_ns;
    if (now_ns - refused_since_ns_ < kRefusedNs) return false;
    suspect(now_ns);
    return true;
  }
  void accepted() { refused_since_ns_ = 0; }

  bool wants_probe(uint64_t now_ns) const { return !is_probing_ && next_ns() <= now_ns; }
  /// The time of the next probe or `check`. kNever: there is none.
  uint64_t next_ns() const {
    const bool is_wanted = state() == RailState::kSuspect || state() == RailState::kDown;
    return is_wanted ? due_ns_ : kNever;
  }
  void probe_begun(uint64_t now_ns) {
    is_probing_ = true;
    due_ns_ = now_ns + kProbeLateNs;
  }
  /// A probe that was under way when something else failed may have arrived before that failure. So
  /// its success proves nothing, and another probe follows.
  void probe_ended(bool ok, uint64_t now_ns) {
    is_probing_ = false;
    if (ok && is_probe_stale_) {
      is_probe_stale_ = false;
      state_ = RailState::kSuspect;
      due_ns_ = now_ns;
      return;
    }
    is_probe_stale_ = false;
    state_ = ok ? RailState::kUp : RailState::kDown;
    up_since_ns_ = now_ns;
    refused_since_ns_ = 0;
    pause_ns_ = std::clamp(2 * pause_ns_, kPauseMinNs, kPauseMaxNs);
    due_ns_ = now_ns + pause_ns_;
  }
  /// Marks the rail as down if its probe is late. A late probe has not failed, and may still end.
  void check(uint64_t now_ns) {
    if (!is_probing_ || now_ns < due_ns_) return;
    state_ = RailState::kDown;
    due_ns_ = kNever;
  }

  bool is_retired_here = false;
  bool is_retired_there = false;

 private:
  RailState state_ = RailState::kUp;
  bool is_probing_ = false;
  bool is_probe_stale_ = false;  // something has failed since the probe began
  uint64_t pause_ns_ = 0;        // before the next probe
  uint64_t due_ns_ = 0;          // of the next probe; while one is under way: when it is late
  uint64_t up_since_ns_ = 0;
  uint64_t refused_since_ns_ = 0;  // 0: it has room
};

}  // namespace braid::fabric
