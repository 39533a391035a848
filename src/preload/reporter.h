// When and where the statistics are shown: at exit, on a signal, at an interval; on stderr or in a
// file. A signal handler can do it: it uses preallocated buffers and write(2), and neither locks
// nor allocates.
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

/// The source of the statistics. Called in signal handlers too.
struct StatisticsSource {
  const Statistics& (*statistics)() noexcept;
  /// Collects what paths have carried, waiting up to `wait_ms` for transfers in flight, and the
  /// states of relays. Returns the number of relays.
  size_t (*collect)(int wait_ms, multipath::PathCounts& paths,
                    std::span<multipath::RelayCount> relays) noexcept;
};

/// Registers the reports that `options` ask for, if any. Call it once in a process. If the file
/// cannot be written, it fails, but registers them all the same.
Status start_reporting(const Options& options, const StatisticsSource& reported);

/// Call it before the program's main. A process that `braid run` became then reports in any case if
/// its user asked for text, and a signal does not end one that has not loaded CUDA yet.
void expect_report() noexcept;

/// Call it when the process ends, in any way that braid can see: shows the statistics once, if
/// there are any.
void report_at_exit() noexcept;

/// Shows the statistics if they are due (BRAID_STATS_INTERVAL), and returns the time until the next
/// report; milliseconds::max(): never. For threads that serve engines.
std::chrono::milliseconds report_when_due() noexcept;

/// Call it in a forked child, which has made no copies yet.
void forget_reports() noexcept;

}  // namespace braid::preload
