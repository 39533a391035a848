// When and where the statistics are shown: at exit, on a signal, at an interval; on stderr or in a
// file. Built so
// that a signal handler may do it: buffers that exist already, write(2), and no lock or allocation.
#pragma once

#include <chrono>

#include "base/options.h"

namespace braid::preload {

/// Registers what `options` ask for; nothing when they ask for no statistics. Once in a process.
/// A file that cannot be written is said at once.
void start_reporting(const Options& options);

/// The process ends, in whatever way braid can see: shows the statistics, once, if there are any.
void report_at_exit() noexcept;

/// Shows the statistics if it is time to (BRAID_STATS_INTERVAL), and says how long until the next
/// time; milliseconds::max(): never. For the helper's thread alone.
std::chrono::milliseconds report_when_due() noexcept;

/// In a forked child, which has made no copies yet.
void forget_reports() noexcept;

}  // namespace braid::preload
