// The C interface: rails and statistics.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "fabric/library/abi.h"
#include "fabric/library/report.h"

using namespace braid::fabric;
using namespace braid::fabric::abi;
using braid::StatsFormat;

static_assert(BRAID_FABRIC_RAIL_UP == static_cast<int>(RailState::kUp));
static_assert(BRAID_FABRIC_RAIL_SUSPECT == static_cast<int>(RailState::kSuspect));
static_assert(BRAID_FABRIC_RAIL_DOWN == static_cast<int>(RailState::kDown));
static_assert(BRAID_FABRIC_RAIL_RETIRED == static_cast<int>(RailState::kRetired));
static_assert(BRAID_FABRIC_TEXT == static_cast<int>(StatsFormat::kText));
static_assert(BRAID_FABRIC_JSON == static_cast<int>(StatsFormat::kJson));
static_assert(BRAID_FABRIC_PROMETHEUS == static_cast<int>(StatsFormat::kPrometheus));

braid_status braid_fabric_retire_rail(braid_fabric* fabric, size_t rail) {
  return guarded(fabric, [&](Service& service) {
    return report(service.with([&](Engine& engine) { return engine.retire_rail(rail); }));
  });
}

braid_status braid_fabric_restore_rail(braid_fabric* fabric, size_t rail) {
  return guarded(fabric, [&](Service& service) {
    return report(service.with([&](Engine& engine) { return engine.restore_rail(rail); }));
  });
}

braid_status braid_fabric_get_statistics(braid_fabric* fabric,
                                         braid_fabric_statistics* statistics) {
  const auto get = [&](Service& service) {
    if (statistics->struct_bytes < sizeof statistics->struct_bytes)
      return report(BRAID_ERROR_ARGUMENT, "struct_bytes is not set");
    const EngineReport all = service.report();
    braid_fabric_statistics counted{};
    counted.struct_bytes = std::min(statistics->struct_bytes, sizeof counted);
    counted.malformed = all.counts.malformed;
    counted.misdirected = all.counts.misdirected;
    counted.refused = all.counts.refused;
    counted.over_credit = all.counts.over_credit;
    counted.unauthenticated = all.counts.unauthenticated;
    counted.replayed = all.counts.replayed;
    counted.peers_failed = all.counts.peers_failed;
    counted.strays = all.strays;
    counted.quarantined_bytes = all.quarantined_bytes;
    std::memcpy(statistics, &counted, counted.struct_bytes);
    return BRAID_OK;
  };
  return guarded(fabric, get, statistics);
}

braid_status braid_fabric_get_routes(braid_fabric* fabric, braid_fabric_route* routes,
                                     size_t capacity, size_t* count) {
  const auto get = [&](Service& service) {
    const auto all = service.with([](Engine& engine) { return engine.routes(); });
    *count = all.size();
    if (routes == nullptr && capacity > 0)
      return report(BRAID_ERROR_ARGUMENT, "a pointer that must be given is null");
    for (size_t i = 0; i < std::min(capacity, all.size()); ++i) {
      const RouteStatistics& from = all[i];
      routes[i] = {from.peer,  from.rail,     static_cast<int>(from.state), from.writes,
                   from.bytes, from.failures, from.under_way_bytes,         from.bytes_per_s};
    }
    return BRAID_OK;
  };
  return guarded(fabric, get, count);
}

braid_status braid_fabric_report(braid_fabric* fabric, int form, char* buffer, size_t buffer_bytes,
                                 size_t* needed_bytes) {
  return guarded(fabric, [&](Service& service) {
    if (form < BRAID_FABRIC_TEXT || form > BRAID_FABRIC_PROMETHEUS)
      return report(BRAID_ERROR_ARGUMENT, "there is no such form of a report");
    const std::string text = write_report(static_cast<StatsFormat>(form), service.report());
    const Bytes bytes = bytes_of(text.c_str(), text.size() + 1);
    return hand_out(bytes.data(), bytes.size(), buffer, buffer_bytes, needed_bytes);
  });
}
