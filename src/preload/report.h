// The statistics as text: for people, as one line of JSON, or in Prometheus's exposition format.
// docs/statistics.md explains each field. Pure; allocates nothing, so a signal handler may call it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/options.h"
#include "base/text_writer.h"
#include "multipath/path_counts.h"
#include "multipath/relay_health.h"
#include "preload/statistics.h"

namespace braid::preload {

/// Environment variable: the number of the process that `braid run` became, which is the program's.
inline constexpr const char* kStartedVariable = "BRAID_STARTED";

struct ReportedProcess {
  int64_t pid = 0;
  std::string_view name;  ///< of the program, as `ps` shows it; may hold any bytes
};

/// Writes nothing for StatsFormat::kNone, otherwise whole lines. Only JSON includes `problems`.
void write_report(StatsFormat format, const ReportedProcess& process, const Statistics& statistics,
                  const multipath::PathCounts& counts,
                  std::span<const multipath::RelayCount> relays, TextWriter& out,
                  std::span<const std::string> problems = {});

}  // namespace braid::preload
