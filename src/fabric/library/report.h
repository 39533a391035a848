// An engine's statistics as text: for people, as one line of JSON, or in Prometheus's exposition
// format; the forms of `braid run --stats`. docs/fabric.md explains the fields. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "fabric/engine.h"

namespace braid::fabric {

/// Memory that an engine of "local" has allocated, and could not share: peers write it through a
/// queue instead of mapping it.
struct Unshared {
  uint64_t allocations = 0;
  std::string why;  ///< of the latest
};

struct EngineReport {
  uint64_t engine = 0;
  EngineStatistics counts;
  uint64_t strays = 0;             ///< immediates that arrived after their release
  uint64_t quarantined_bytes = 0;  ///< including peers that are gone
  std::vector<RailStatistics> rails;
  std::vector<std::string> addresses;  ///< by rail
  std::vector<std::string> nics;       ///< by rail; empty: unknown
  std::vector<RouteStatistics> routes;
  std::vector<PeerStatistics> peers;
  Unshared unshared;
};

EngineReport report_of(const Engine& engine);

/// "up", "suspect", "down" or "retired".
const char* rail_state_name(RailState state);

/// Whole lines. kNone: nothing.
std::string write_report(StatsFormat format, const EngineReport& report);

}  // namespace braid::fabric
