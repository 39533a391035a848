// How fast one process posts over a rail that others use too, so that each gets its max-min share
// (policy/share.h). Pure: it computes a pace from the rows and the time.
//
// The capacity of a rail is not known (a NIC claims more than its switch gives), so it is measured:
// while slices wait for the rail, the capacity to share is what all processes deliver together.
// Each process keeps to its part and a tenth. So a process that has taken more gives that up, the
// others find it, and a rail that could carry more shows it. If something else keeps some processes
// from using their parts, all together deliver less than the rail carries: then each process may
// exceed its part by more and more, until the rail is full again. Bytes of both directions count
// alike.
// Source: TENT, 3.3.2, whose quotas are time slots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transfer/policy/share.h"

namespace braid::transfer {

/// How often processes write their rows and read the others'.
inline constexpr uint64_t kShareBeatNs = 1'000'000;

/// A process's report to the others about one rail, without its time.
struct ShareTold {
  double rate_gbps = 0;
  bool is_active = false;
  bool is_full = false;  ///< slices wait for the rail
};

/// The combined reports of all processes.
struct ShareHeard {
  std::span<const ShareRow> rows;  ///< of the processes that are alive and active
  size_t mine = 0;                 ///< the index of this process's row
  bool is_full = false;            ///< slices of some process wait
  uint64_t members = 0;            ///< a number that changes when a process comes or goes
  uint64_t delivered_bytes = 0;    ///< the total of all members
};

class SharePace {
 public:
  SharePace();
  /// Returns the report of this process. To be called once a beat.
  ShareTold tell(const RailUse& use, uint64_t now_ns);
  /// The share and pace of this process, while it is active.
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
  uint64_t full_ns_ = 0;  // when slices last waited
  double gain_;
  bool is_measuring_ = false;
  uint64_t members_ = 0;
  uint64_t begun_ns_ = 0;
  uint64_t begun_bytes_ = 0;
  std::array<Window, kWindows> windows_{};
  size_t next_ = 0;
};

}  // namespace braid::transfer
