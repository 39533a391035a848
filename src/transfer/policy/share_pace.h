// How fast one process posts over a rail that others use too, so that each gets its max-min share
// (policy/share.h). Pure: what the rows say and the time go in, a pace comes out.
//
// Nobody knows what a rail carries (a NIC claims more than its switch gives), so it is measured:
// while slices wait for the rail, what all deliver together is what there is to share. Each keeps
// to its part and a tenth: who has taken more leaves that, the others find it, and a rail that
// could carry more shows it. If some cannot use their part, since something else holds them back,
// all deliver less than the rail carries: then everybody may exceed its part by more and more,
// until the rail is full again. Bytes count alike in both directions.
// Source: TENT, 3.3.2, whose quotas are time slots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transfer/policy/share.h"

namespace braid::transfer {

/// How often processes tell, and look.
inline constexpr uint64_t kShareBeatNs = 1'000'000;

/// What a process says of one rail, beside when.
struct ShareTold {
  double rate_gbps = 0;
  bool is_active = false;
  bool is_full = false;  ///< slices wait for the rail
};

/// What all have said.
struct ShareHeard {
  std::span<const ShareRow> rows;  ///< of those that are alive and active
  size_t mine = 0;                 ///< among them
  bool is_full = false;            ///< somebody's slices wait
  uint64_t members = 0;            ///< another number once somebody comes or goes
  uint64_t delivered_bytes = 0;    ///< of all members, in all
};

class SharePace {
 public:
  SharePace();
  /// What is told, once a beat.
  ShareTold tell(const RailUse& use, uint64_t now_ns);
  /// For an active process.
  RailShare decide(const ShareHeard& heard, uint64_t now_ns);

 private:
  static constexpr size_t kWindows = 20;
  struct Window {
    uint64_t ended_ns = 0;
    double gbps = 0;
  };

  void measure(const ShareHeard& heard, uint64_t now_ns);
  double capacity_gbps(uint64_t now_ns) const;

  uint64_t told_ns_ = 0;
  uint64_t told_bytes_ = 0;
  double rate_gbps_ = 0;
  uint64_t full_ns_ = 0;  // when slices waited last
  double gain_;
  bool is_measuring_ = false;
  uint64_t members_ = 0;
  uint64_t begun_ns_ = 0;
  uint64_t begun_bytes_ = 0;
  std::array<Window, kWindows> windows_{};
  size_t next_ = 0;
};

}  // namespace braid::transfer
