// Whether a peer is reached over a rail. Pure: told what happens and when, it says how good the
// rail is, and when to try it again.
//
// A posting that fails, or is late, makes the rail suspect. One probe then shows whether it was the
// rail: a write of one byte, which carries nothing. Slices take a worse rail only if the peer has
// none that is better, so a peer's last rail is never given up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace braid::fabric {

enum class RailState : uint8_t {
  kUp,
  kSuspect,  ///< something has failed or is late, and a probe is to tell
  kDown,     ///< a probe has failed; others come, until one succeeds
  kRetired   ///< taken out of use on purpose, here or at the peer
};

class RailHealth {
 public:
  static constexpr uint64_t kPauseMinNs = 1'000'000;
  static constexpr uint64_t kPauseMaxNs = 1'000'000'000;
  /// A rail that fails again so soon after it came back is tried later than the time before.
  static constexpr uint64_t kSteadyNs = 1'000'000'000;

  RailState state() const {
    return is_retired_here || is_retired_there ? RailState::kRetired : state_;
  }
  /// Slices take the rails of the lowest rank that a peer has.
  unsigned rank() const { return static_cast<unsigned>(state()); }

  void suspect(uint64_t now_ns) {
    if (state_ != RailState::kUp) return;
    state_ = RailState::kSuspect;
    if (now_ns - up_since_ns_ >= kSteadyNs) pause_ns_ = 0;
    due_ns_ = now_ns + pause_ns_;
  }

  bool wants_probe(uint64_t now_ns) const { return next_probe_ns() <= now_ns; }
  /// The largest number: none, unless something happens.
  uint64_t next_probe_ns() const {
    const bool is_wanted =
        (state() == RailState::kSuspect || state() == RailState::kDown) && !is_probing_;
    return is_wanted ? due_ns_ : std::numeric_limits<uint64_t>::max();
  }
  void probe_begun() { is_probing_ = true; }
  void probe_ended(bool ok, uint64_t now_ns) {
    is_probing_ = false;
    state_ = ok ? RailState::kUp : RailState::kDown;
    up_since_ns_ = now_ns;
    pause_ns_ = std::clamp(2 * pause_ns_, kPauseMinNs, kPauseMaxNs);
    due_ns_ = now_ns + pause_ns_;
  }

  bool is_retired_here = false;
  bool is_retired_there = false;

 private:
  RailState state_ = RailState::kUp;
  bool is_probing_ = false;
  uint64_t pause_ns_ = 0;  // before the next probe
  uint64_t due_ns_ = 0;
  uint64_t up_since_ns_ = 0;
};

}  // namespace braid::fabric
