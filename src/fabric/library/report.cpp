#include "fabric/library/report.h"

#include <array>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "base/metric.h"
#include "base/prometheus.h"
#include "base/written_text.h"

namespace braid::fabric {
namespace {

using Json = nlohmann::ordered_json;

using Count = Metric<std::function<uint64_t(const EngineReport&)>>;

const std::vector<Count>& counts() {
  static const std::vector<Count> table = {
      {"malformed", "braid_fabric_malformed_total", "counter", "Messages that could not be read.",
       [](const EngineReport& r) { return r.counts.malformed; }},
      {"unauthenticated", "braid_fabric_unauthenticated_total", "counter",
       "Messages that were not sealed with the secret.",
       [](const EngineReport& r) { return r.counts.unauthenticated; }},
      {"replayed", "braid_fabric_replayed_total", "counter", "Messages that had come before.",
       [](const EngineReport& r) { return r.counts.replayed; }},
      {"misdirected", "braid_fabric_misdirected_total", "counter",
       "Messages for another engine, or from nobody known.",
       [](const EngineReport& r) { return r.counts.misdirected; }},
      {"refused", "braid_fabric_refused_total", "counter",
       "Peers beyond the limit, with other rails, or without being asked.",
       [](const EngineReport& r) { return r.counts.refused; }},
      {"over_credit", "braid_fabric_over_credit_total", "counter",
       "Messages of peers that had no credit.",
       [](const EngineReport& r) { return r.counts.over_credit; }},
      {"peers_failed", "braid_fabric_peers_failed_total", "counter", "Peers that were given up.",
       [](const EngineReport& r) { return r.counts.peers_failed; }},
      {"strays", "braid_fabric_strays_total", "counter",
       "Immediates that came after their release.", [](const EngineReport& r) { return r.strays; }},
      {"quarantined_bytes", "braid_fabric_quarantined_bytes", "gauge",
       "Memory that was granted to peers that do not answer.",
       [](const EngineReport& r) { return r.quarantined_bytes; }},
      {"unshared_allocations", "braid_fabric_unshared_allocations_total", "counter",
       "Allocations that peers cannot map.",
       [](const EngineReport& r) { return r.unshared.allocations; }},
  };
  return table;
}

/// One number of a peer over a rail.
using Column = Metric<uint64_t RouteStatistics::*>;

constexpr std::array<Column, 6> kColumns = {{
    {"writes", "braid_fabric_writes_total", "counter", "Slices that have been written.",
     &RouteStatistics::writes},
    {"bytes", "braid_fabric_bytes_total", "counter", "Bytes that have been written.",
     &RouteStatistics::bytes},
    {"failures", "braid_fabric_failures_total", "counter", "Slices and messages that have failed.",
     &RouteStatistics::failures},
    {"under_way_bytes", "braid_fabric_under_way_bytes", "gauge", "Bytes on their way.",
     &RouteStatistics::under_way_bytes},
    {"bytes_per_s", "braid_fabric_bytes_per_second", "gauge",
     "Bytes that were written in the last half second, a second.", &RouteStatistics::bytes_per_s},
    {"endpoints", "braid_fabric_route_endpoints", "gauge",
     "Endpoints over which large writes go to the peer.", &RouteStatistics::endpoints},
}};

constexpr std::array kStates = {RailState::kUp, RailState::kSuspect, RailState::kDown,
                                RailState::kRetired};

std::string hex(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// ---- JSON

Json rail_json(const EngineReport& report, size_t rail) {
  const RailStatistics& at = report.rails[rail];
  return {{"rail", rail},
          {"provider", at.provider},
          {"address", report.addresses[rail]},
          {"nic", report.nics[rail].empty() ? Json(nullptr) : Json(report.nics[rail])},
          {"is_retired", at.is_retired},
          {"immediates", at.immediates},
          {"endpoints", at.endpoints}};
}

Json route_json(const RouteStatistics& route) {
  Json json{
      {"peer", hex(route.engine)}, {"rail", route.rail}, {"state", rail_state_name(route.state)}};
  for (const Column& column : kColumns) json[column.key] = route.*column.value;
  return json;
}

std::string write_json(const EngineReport& report) {
  Json json{{"engine", hex(report.engine)}};
  for (const Count& count : counts()) json[count.key] = count.value(report);
  json["unshared_why"] =
      report.unshared.allocations == 0 ? Json(nullptr) : Json(report.unshared.why);
  json["rails"] = Json::array();
  for (size_t rail = 0; rail < report.rails.size(); ++rail)
    json["rails"].push_back(rail_json(report, rail));
  json["routes"] = Json::array();
  for (const RouteStatistics& route : report.routes) json["routes"].push_back(route_json(route));
  json["peers"] = Json::array();
  for (const PeerStatistics& peer : report.peers)
    json["peers"].push_back(
        {{"peer", hex(peer.engine)}, {"quarantined_bytes", peer.quarantined_bytes}});
  return Json{{"braid_fabric", json}}.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// ---- text

constexpr size_t kSecond = 20;
constexpr size_t kThird = 28;
constexpr size_t kFourth = 37;

void write_gbps(uint64_t bytes_per_s, TextWriter& out) {
  const uint64_t mega = bytes_per_s / 1'000'000;
  out.right(mega / 1000, 6) << "." << mega / 100 % 10 << mega / 10 % 10 << mega % 10;
}

void write_text(const EngineReport& report, TextWriter& out) {
  out << "braid fabric: engine " << hex(report.engine) << ", " << report.rails.size() << " rails, "
      << report.peers.size() << " peers";
  for (const Count& count : counts())
    if (const uint64_t value = count.value(report); value != 0)
      out << "; " << count.key << " " << value;
  (out << "\n  rail").tab(8) << "address";
  out.tab(kThird) << "NIC";
  out.tab(kFourth) << "provider";
  out.tab(kFourth + 14).right("endpoints", 11).right("immediates", 12) << "\n";
  for (size_t rail = 0; rail < report.rails.size(); ++rail) {
    const RailStatistics& at = report.rails[rail];
    (out << "  " << rail).tab(8) << report.addresses[rail];
    out.tab(kThird) << (report.nics[rail].empty() ? "-" : report.nics[rail]);
    out.tab(kFourth) << at.provider;
    out.tab(kFourth + 14).right(at.endpoints, 11).right(at.immediates, 12)
        << (at.is_retired ? "  retired" : "") << "\n";
  }
  if (report.unshared.allocations > 0)
    out << "  peers cannot map what was allocated last: " << report.unshared.why << "\n";
  if (report.routes.empty()) return;
  (out << "  to peer").tab(kSecond) << "over";
  out.tab(kThird) << "state";
  out.tab(kFourth).right("writes", 10).right("bytes", 16).right("failures", 10).right("GB/s", 10)
      << "\n";
  for (const RouteStatistics& route : report.routes) {
    (out << "  " << hex(route.engine)).tab(kSecond) << "rail " << route.rail;
    out.tab(kThird) << rail_state_name(route.state);
    out.tab(kFourth).right(route.writes, 10).right(route.bytes, 16).right(route.failures, 10);
    write_gbps(route.bytes_per_s, out);
    out << "\n";
  }
  for (const PeerStatistics& peer : report.peers)
    if (peer.quarantined_bytes > 0)
      out << "  " << hex(peer.engine) << ": " << peer.quarantined_bytes
          << " bytes are quarantined\n";
}

// ---- Prometheus

template <typename Value>
void write_series(const char* metric, const EngineReport& report, const RouteStatistics& route,
                  std::string_view label, const Value& value, TextWriter& out) {
  out << metric << "{engine=\"" << hex(report.engine) << "\",peer=\"" << hex(route.engine)
      << "\",rail=\"" << route.rail << "\"" << label << "} " << value << "\n";
}

void write_states(const EngineReport& report, TextWriter& out) {
  write_head("braid_fabric_rail_state", "gauge", "1 for the state that the rail is in.", out);
  for (const RouteStatistics& route : report.routes)
    for (const RailState state : kStates)
      write_series("braid_fabric_rail_state", report, route,
                   std::string(",state=\"") + rail_state_name(state) + "\"",
                   route.state == state ? 1 : 0, out);
}

void write_prometheus(const EngineReport& report, TextWriter& out) {
  const std::string engine = hex(report.engine);
  for (const Count& count : counts()) {
    write_head(count, out);
    out << count.name << "{engine=\"" << engine << "\"} " << count.value(report) << "\n";
  }
  const auto write_by_rail = [&](const char* name, uint64_t RailStatistics::*value) {
    for (size_t rail = 0; rail < report.rails.size(); ++rail) {
      out << name << "{engine=\"" << engine << "\",rail=\"" << rail << "\",address=\"";
      write_escaped(report.addresses[rail], out);
      out << "\"} " << report.rails[rail].*value << "\n";
    }
  };
  write_head("braid_fabric_immediates_total", "counter", "Immediates that have arrived.", out);
  write_by_rail("braid_fabric_immediates_total", &RailStatistics::immediates);
  write_head("braid_fabric_endpoints", "gauge", "Endpoints that the rail has open.", out);
  write_by_rail("braid_fabric_endpoints", &RailStatistics::endpoints);
  for (const Column& column : kColumns) {
    write_head(column, out);
    for (const RouteStatistics& route : report.routes)
      write_series(column.name, report, route, "", route.*column.value, out);
  }
  write_states(report, out);
  write_head("braid_fabric_peer_quarantined_bytes", "gauge",
             "Memory that was granted to the peer, and where its writes may still land.", out);
  for (const PeerStatistics& peer : report.peers)
    out << "braid_fabric_peer_quarantined_bytes{engine=\"" << engine << "\",peer=\""
        << hex(peer.engine) << "\"} " << peer.quarantined_bytes << "\n";
}

}  // namespace

const char* rail_state_name(RailState state) {
  switch (state) {
    case RailState::kUp: return "up";
    case RailState::kSuspect: return "suspect";
    case RailState::kDown: return "down";
    case RailState::kRetired: return "retired";
  }
  return "";
}

EngineReport report_of(const Engine& engine) {
  EngineReport report;
  report.engine = engine.address().engine;
  report.counts = engine.statistics();
  report.strays = engine.counters().strays();
  report.quarantined_bytes = engine.quarantined_bytes();
  report.rails = engine.rails();
  report.addresses.resize(report.rails.size());
  report.nics.resize(report.rails.size());
  report.routes = engine.routes();
  report.peers = engine.peers();
  return report;
}

std::string write_report(StatsFormat format, const EngineReport& report) {
  if (format == StatsFormat::kJson) return write_json(report);
  return written_text([&](TextWriter& out) {
    if (format == StatsFormat::kText) write_text(report, out);
    if (format == StatsFormat::kPrometheus) write_prometheus(report, out);
  });
}

}  // namespace braid::fabric
