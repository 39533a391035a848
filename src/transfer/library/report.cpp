#include "transfer/library/report.h"

#include <array>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/metric.h"
#include "base/prometheus.h"
#include "base/written_text.h"

namespace braid::transfer {
namespace {

using Json = nlohmann::ordered_json;

using Count = Metric<std::function<uint64_t(const TransferReport&)>>;

const std::vector<Count>& counts() {
  using R = TransferReport;
  static const std::vector<Count> table = {
      {"requests_done", "braid_transfer_requests_done_total", "counter", "Requests that are done.",
       [](const R& r) { return r.counts.requests_done; }},
      {"requests_failed", "braid_transfer_requests_failed_total", "counter",
       "Requests that have failed.", [](const R& r) { return r.counts.requests_failed; }},
      {"bytes_read", "braid_transfer_read_bytes_total", "counter", "Bytes that were read.",
       [](const R& r) { return r.counts.bytes_read; }},
      {"bytes_written", "braid_transfer_written_bytes_total", "counter", "Bytes that were written.",
       [](const R& r) { return r.counts.bytes_written; }},
      {"slices", "braid_transfer_slices_total", "counter", "Slices that were posted.",
       [](const R& r) { return r.counts.slices; }},
      {"reissued_slices", "braid_transfer_reissued_slices_total", "counter",
       "Slices that were posted again, since they were late or had failed.",
       [](const R& r) { return r.counts.reissued_slices; }},
      {"fences", "braid_transfer_fences_total", "counter",
       "Ways that were fenced, so that nothing late could land.",
       [](const R& r) { return r.counts.fences; }},
      {"peers_lost", "braid_transfer_peers_lost_total", "counter", "Peers that were given up.",
       [](const R& r) { return r.counts.peers_lost; }},
      {"dials", "braid_transfer_dials_total", "counter", "Links that were asked for.",
       [](const R& r) { return r.links.dials; }},
      {"links_lost", "braid_transfer_links_lost_total", "counter", "Links that have broken.",
       [](const R& r) { return r.links.links_lost; }},
      {"notifications_sent", "braid_transfer_notifications_sent_total", "counter",
       "Notifications to peers.", [](const R& r) { return r.links.notifications_sent; }},
      {"notifications_received", "braid_transfer_notifications_received_total", "counter",
       "Notifications of peers.", [](const R& r) { return r.links.notifications_received; }},
      {"questions_answered", "braid_transfer_questions_answered_total", "counter",
       "Questions for this engine, by name, that were answered.",
       [](const R& r) { return r.questions.answered; }},
      {"questions_refused", "braid_transfer_questions_refused_total", "counter",
       "Questions that were malformed, without the secret, of another user, or too late.",
       [](const R& r) { return r.questions.refused; }},
      {"buffers", "braid_transfer_buffers", "gauge", "Buffers that are registered.",
       [](const R& r) { return r.buffers; }},
      {"mappings", "braid_transfer_mappings", "gauge",
       "Buffers of processes of this host that are mapped here.",
       [](const R& r) { return r.mappings; }},
      {"mappings_refused", "braid_transfer_mappings_refused_total", "counter",
       "Buffers that processes of this host have handed out, and that were not mapped.",
       [](const R& r) { return r.counts.mappings_refused; }},
      {"registrations_refused", "braid_transfer_registrations_refused", "gauge",
       "Rails that could not register a buffer, for each buffer.",
       [](const R& r) { return r.refused.size(); }},
  };
  return table;
}

/// One number of a way.
using Column = Metric<uint64_t PathView::*>;

constexpr std::array<Column, 4> kColumns = {{
    {"delivered_bytes", "braid_transfer_way_bytes_total", "counter", "Bytes that went this way.",
     &PathView::delivered_bytes},
    {"delivered_slices", "braid_transfer_way_slices_total", "counter", "Slices that went this way.",
     &PathView::delivered_slices},
    {"reissued_slices", "braid_transfer_way_reissued_slices_total", "counter",
     "Slices that were late here, or have failed.", &PathView::reissued_slices},
    {"in_flight_bytes", "braid_transfer_way_in_flight_bytes", "gauge", "Bytes on this way now.",
     &PathView::in_flight_bytes},
}};

constexpr std::array kStates = {PathState::kUp, PathState::kSuspect, PathState::kDown,
                                PathState::kProbing, PathState::kRejoining};

std::string number(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 1, ' ');
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json json_of(const std::vector<RefusedMemory>& refused) {
  Json all = Json::array();
  for (const RefusedMemory& each : refused)
    all.push_back({{"rail", each.rail},
                   {"address", each.address},
                   {"size_bytes", each.size_bytes},
                   {"why", each.why}});
  return all;
}

std::string text_of(const std::vector<RefusedMemory>& refused) {
  std::string text;
  for (const RefusedMemory& each : refused)
    text += "  " + each.rail + " could not register " + std::to_string(each.size_bytes) +
            " bytes: " + each.why + "\n";
  return text;
}

std::string write_json(const TransferReport& report) {
  Json json{{"name", report.name}, {"monotonic_ns", report.time_ns}};
  for (const Count& count : counts()) json[count.key] = count.value(report);
  json["ways"] = Json::array();
  for (const PathStatistics& path : report.paths) {
    Json way{{"peer", to_hex(path.peer)},
             {"way", path.text},
             {"state", state_name(path.view.state)},
             {"rate_gbps", path.view.rate_gbps},
             {"base_latency_us", path.view.base_latency_us},
             {"share", path.view.share.share},
             {"pace_gbps", path.view.share.gbps}};
    for (const Column& column : kColumns) way[column.key] = path.view.*column.value;
    json["ways"].push_back(way);
  }
  json["refused"] = json_of(report.refused);
  json["links"] = Json::array();
  for (const LinkUse& link : report.rail_links)
    json["links"].push_back({{"rail", link.rail},
                             {"peer", to_hex(link.counts.who)},
                             {"is_up", link.counts.is_up},
                             {"endpoints", link.counts.endpoints},
                             {"read_bytes", link.counts.read_bytes},
                             {"written_bytes", link.counts.written_bytes},
                             {"served_bytes", link.counts.served_bytes},
                             {"failures", link.counts.failures}});
  return dump(Json{{"braid_transfer", json}});
}

std::string write_text(const TransferReport& report) {
  std::string text = "braid transfer: " + report.name + "\n ";
  for (const Count& count : counts())
    if (const uint64_t value = count.value(report); value != 0)
      text += std::string(" ") + count.key + " " + std::to_string(value);
  text += "\n" + text_of(report.refused);
  if (report.paths.empty()) return text + "  no ways to anybody yet\n";
  text += "  " + padded("peer", 10) + padded("way", 44) + padded("state", 10) + padded("GB/s", 9) +
          padded("base us", 9) + padded("MB", 10) + "reissued\n";
  for (const PathStatistics& path : report.paths)
    text += "  " + padded(to_hex(path.peer).substr(0, 8), 10) + padded(path.text, 44) +
            padded(state_name(path.view.state), 10) + padded(number(path.view.rate_gbps, 3), 9) +
            padded(number(path.view.base_latency_us, 1), 9) +
            padded(number(static_cast<double>(path.view.delivered_bytes) / 1e6, 1), 10) +
            std::to_string(path.view.reissued_slices) + "\n";
  return text;
}

void write_labels(const PathStatistics& path, TextWriter& out) {
  out << "peer=\"" << to_hex(path.peer) << "\",way=\"";
  write_escaped(path.text, out);
  out << "\"";
}

void write_prometheus(const TransferReport& report, TextWriter& out) {
  for (const Count& count : counts()) {
    write_head(count, out);
    out << count.name << " " << count.value(report) << "\n";
  }
  for (const Column& column : kColumns) {
    write_head(column, out);
    for (const PathStatistics& path : report.paths) {
      out << column.name << "{";
      write_labels(path, out);
      out << "} " << path.view.*column.value << "\n";
    }
  }
  constexpr const char* kState = "braid_transfer_way_state";
  write_head(kState, "gauge", "1 for the state that a way is in.", out);
  for (const PathStatistics& path : report.paths)
    for (const PathState state : kStates) {
      out << kState << "{";
      write_labels(path, out);
      out << ",state=\"" << state_name(state) << "\"} " << (path.view.state == state ? 1 : 0)
          << "\n";
    }
}

}  // namespace

TransferReport report_of(const Engine& engine, const DirectoryStatistics& questions,
                         const std::string& name) {
  return {name,
          monotonic_ns(),
          engine.statistics(),
          engine.fabric_statistics(),
          questions,
          engine.buffers().size(),
          engine.mapped_count(),
          engine.paths(),
          engine.refused_memory(),
          engine.links()};
}

std::string write_report(StatsFormat format, const TransferReport& report) {
  if (format == StatsFormat::kJson) return write_json(report);
  if (format == StatsFormat::kText) return write_text(report);
  return written_text([&](TextWriter& out) {
    if (format == StatsFormat::kPrometheus) write_prometheus(report, out);
  });
}

namespace {

Json json_of(const std::vector<HopExplanation>& hops) {
  Json json = Json::array();
  for (const HopExplanation& hop : hops) json.push_back({{"hop", hop.text}, {"us", hop.us}});
  return json;
}

Json json_of(const std::vector<LegExplanation>& legs) {
  Json json = Json::array();
  for (const LegExplanation& leg : legs)
    json.push_back({{"part", leg.part}, {"gbps", leg.gbps}, {"hops", json_of(leg.hops)}});
  return json;
}

std::string text_of(const std::vector<HopExplanation>& hops) {
  std::string text;
  for (const HopExplanation& hop : hops)
    text += (text.empty() ? " " : "; ") + hop.text + " (" + number(hop.us, 1) + " us)";
  return text + "\n";
}

std::string text_of(const std::vector<LegExplanation>& legs) {
  std::string text;
  for (const LegExplanation& leg : legs)
    text += "    " + number(100 * leg.part, 0) + " % of each copy, " + number(leg.gbps, 1) +
            " GB/s:" + text_of(leg.hops);
  return text;
}

}  // namespace

std::string write_explanation(StatsFormat format, const std::vector<WayExplanation>& ways,
                              uint64_t size_bytes, const std::vector<RefusedMemory>& refused) {
  Json json{{"size_bytes", size_bytes}, {"ways", Json::array()}, {"refused", json_of(refused)}};
  std::string text = "a request of " + std::to_string(size_bytes) + " bytes:\n";
  for (const WayExplanation& each : ways) {
    const WayExplained& way = each.way;
    const bool is_usable = way.state == PathState::kUp || way.state == PathState::kRejoining;
    const std::string why = way.is_chosen      ? "the soonest for the first slice"
                            : !is_usable       ? "does not work now"
                            : way.stands_by    ? "stands by for a better transport"
                            : !way.has_room    ? "full now"
                            : way.way.tier > 0 ? "farther, and not sooner by a quarter"
                                               : "later";
    json["ways"].push_back({{"way", each.text},
                            {"tier", way.way.tier},
                            {"rank", way.way.rank},
                            {"state", state_name(way.state)},
                            {"eta_us", way.eta_us},
                            {"rate_gbps", way.rate_gbps},
                            {"finish_us", each.finish_us},
                            {"hops", json_of(each.hops)},
                            {"legs", json_of(each.legs)},
                            {"is_chosen", way.is_chosen},
                            {"why", why}});
    text += "  " + padded(each.text, 44) + padded(state_name(way.state), 10) +
            padded(number(way.eta_us, 1) + " us", 14) +
            padded(number(way.rate_gbps, 3) + " GB/s", 14) + why + "\n";
    if (each.hops.size() > 1)
      text += "    all by it in " + number(each.finish_us, 1) + " us:" + text_of(each.hops);
    text += text_of(each.legs);
  }
  return format == StatsFormat::kJson ? dump(json) : text + text_of(refused);
}

}  // namespace braid::transfer
