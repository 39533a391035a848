// How much of a rail each process of a host may use: max-min fair and work-conserving. Pure: it
// computes shares from the rows of all processes. Each process writes its own row of a table that
// all read, so no lock is needed, and a crash leaves only a row with an old beat.
// Source: TENT, 3.3.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace braid::transfer {

/// The row that a process writes about itself and one rail.
struct ShareRow {
  uint64_t process = 0;      ///< 0: the row is free
  uint64_t beat_ns = 0;      ///< when it last wrote this, by the host's monotonic clock
  double rate_gbps = 0;      ///< the rate that it delivers over the rail
  bool has_backlog = false;  ///< it has more to post than its share allows
};

/// How a scheduler has used a rail.
struct RailUse {
  uint64_t delivered_bytes = 0;  ///< in all
  bool is_active = false;        ///< slices wait, or are or were in flight since the last look
  bool is_full = false;          ///< slices have waited for it since the last look
};

/// How much of a rail a process may use.
struct RailShare {
  double share = 1;  ///< in (0, 1]; 1: no other process is there
  double gbps = 0;   ///< how fast it may post, 10^9 bytes a second; 0: as fast as it can
};

struct ShareRules {
  uint64_t dead_after_ns = 5'000'000;  ///< without a beat
  /// The factor by which a process without a backlog may grow at once.
  double headroom = 1.25;
  /// The least share of a rail that a process has, so that a process that begins is not held up
  /// until the others have seen it.
  double least = 0.02;
};

/// Each demand's part of the capacity. Capacity that some do not need goes evenly to those that
/// want more.
std::vector<double> max_min(double capacity, std::span<const double> demands);

/// The part of the rail that row `mine` may use, in (0, 1]: 1 if no other process is there.
double share_of(std::span<const ShareRow> rows, size_t mine, double capacity_gbps, uint64_t now_ns,
                const ShareRules& rules = {});

}  // namespace braid::transfer
