// How much of a rail each process of a host may use: max-min fair and work-conserving. Pure: given
// what each process says of itself, it returns shares. Each process writes its own row of a table
// that all read, so no lock is needed and a crash leaves nothing but a row whose beat is old.
// Source: TENT, 3.3.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace braid::transfer {

/// What a process says of itself and one rail.
struct ShareRow {
  uint64_t process = 0;      ///< 0: nobody's
  uint64_t beat_ns = 0;      ///< when it last wrote this, by the host's monotonic clock
  double rate_gbps = 0;      ///< what it delivers over the rail
  bool has_backlog = false;  ///< more waits than its share lets through
};

/// What a scheduler has done with a rail.
struct RailUse {
  uint64_t delivered_bytes = 0;  ///< in all
  bool is_active = false;        ///< something is or was in flight since the last look, or waits
  bool is_full = false;          ///< slices have waited for it since the last look
};

/// What a process may use of a rail.
struct RailShare {
  double share = 1;  ///< in (0, 1]; 1: nobody else is there
  double gbps = 0;   ///< how fast it may post, 10^9 bytes a second; 0: as fast as it can
};

struct ShareRules {
  uint64_t dead_after_ns = 5'000'000;  ///< without a beat
  /// What a process without a backlog may grow by at once.
  double headroom = 1.25;
  /// Of the rail: nobody has less, so that who begins is not held up until the others have seen it.
  double least = 0.02;
};

/// Each demand's part of the capacity: what nobody needs goes to those that want more, evenly.
std::vector<double> max_min(double capacity, std::span<const double> demands);

/// The part of the rail that row `mine` may use, in (0, 1]: 1 if nobody else is there.
double share_of(std::span<const ShareRow> rows, size_t mine, double capacity_gbps, uint64_t now_ns,
                const ShareRules& rules = {});

}  // namespace braid::transfer
