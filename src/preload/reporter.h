// When and where the statistics are shown: at exit, on a signal, at an interval; on stderr or in a
// file. Built so
// that a signal handler may do it: buffers that exist already, write(2), and no lock or allocation.
#pragma once

#include <chrono>
#include <span>

#include "base/options.h"
#include "base/status.h"
#include "multipath/access.h"
#include "multipath/path_counts.h"
#include "multipath/relay_health.h"
#include "preload/statistics.h"

namespace braid::preload {

/// Whose statistics they are. Called in signal handlers too.
struct StatisticsSource {
  const Statistics& (*statistics)() noexcept;
  /// What paths have carried, waiting so long for transfers in flight, and how relays are. How many
  /// relays.
  size_t (*collect)(int wait_ms, multipath::PathCounts& paths,
                    std::span<multipath::RelayCount> relays) noexcept;
};

/// Registers what `options` ask for; nothing when they ask for no statistics. Once in a process.
/// Fails, and registers it all the same, when the file cannot be written.
Status start_reporting(const Options& options, const StatisticsSource& reported);

/// Call before the program's main: a process that `braid run` became reports in any case, if its
/// user asked for text, and a signal does not end one that has not loaded CUDA yet.
void expect_report() noexcept;

/// The process ends, in whatever way braid can see: shows the statistics, once, if there are any.
void report_at_exit() noexcept;

/// Shows the statistics if it is time to (BRAID_STATS_INTERVAL), and says how long until the next
/// time; milliseconds::max(): never. For threads that serve engines.
std::chrono::milliseconds report_when_due() noexcept;

/// In a forked child, which has made no copies yet.
void forget_reports() noexcept;

}  // namespace braid::preload
