// The statistics of an engine: plain data, as of one moment. Rows of routes and rails are tables,
// so that every form of the report (library/report.h) names the same things.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fabric/policy/rail_health.h"

namespace braid::fabric {

/// The traffic to one peer over one rail.
struct RouteStatistics {
  uint64_t peer = 0;
  uint64_t engine = 0;  ///< the peer's own number
  size_t rail = 0;
  RailState state = RailState::kUp;
  uint64_t writes = 0;    ///< slices that have completed well
  uint64_t bytes = 0;     ///< theirs
  uint64_t failures = 0;  ///< of slices and messages
  uint64_t under_way_bytes = 0;
  uint64_t bytes_per_s = 0;  ///< lately (policy/recent_rate.h)
  uint64_t endpoints = 1;    ///< of the rail, over which large writes go (endpoints.h)
};

/// One rail, whoever is at its other end.
struct RailStatistics {
  std::string provider;
  bool is_retired = false;
  uint64_t immediates = 0;  ///< arrived from all peers: they carry no sender
  uint64_t endpoints = 1;   ///< that it has open
};

struct PeerStatistics {
  uint64_t peer = 0;
  uint64_t engine = 0;
  uint64_t quarantined_bytes = 0;  ///< granted to it; its writes may still land there
};

}  // namespace braid::fabric
