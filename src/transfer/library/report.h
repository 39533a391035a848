// Writes an engine's counters and ways as text: for people, as one line of JSON, or in Prometheus's
// exposition format. docs/transfer.md explains the fields. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"
#include "transfer/directory/server.h"
#include "transfer/engine.h"

namespace braid::transfer {

struct TransferReport {
  std::string name;      ///< of the engine
  uint64_t time_ns = 0;  ///< of the host's monotonic clock, when the rest was true
  TransferStatistics counts;
  FabricStatistics links;
  DirectoryStatistics questions;
  uint64_t buffers = 0;
  uint64_t mappings = 0;
  std::vector<PathStatistics> paths;
  std::vector<RefusedMemory> refused;
  std::vector<LinkUse> rail_links;
};

TransferReport report_of(const Engine& engine, const DirectoryStatistics& questions,
                         const std::string& name);

/// Returns whole lines. kNone: nothing.
std::string write_report(StatsFormat format, const TransferReport& report);

/// As text or JSON. `refused`: the rails that refused the local memory.
std::string write_explanation(StatsFormat format, const std::vector<WayExplanation>& ways,
                              uint64_t size_bytes, const std::vector<RefusedMemory>& refused = {});

}  // namespace braid::transfer
