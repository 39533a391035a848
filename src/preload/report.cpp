#include "preload/report.h"

#include <functional>

#include "base/prometheus.h"
#include "multipath/statistics_json.h"
#include "preload/summary.h"

namespace braid::preload {
namespace {

using multipath::direction_name;
using multipath::kPercentiles;
using multipath::Mover;
using multipath::mover_name;
using multipath::PathCount;
using multipath::PathCounts;
using multipath::Percentile;
using multipath::relay_state_name;
using multipath::RelayCount;
using multipath::Verdict;
using multipath::verdict_name;

using Relays = std::span<const RelayCount>;
using Problems = std::span<const std::string>;

constexpr CostClass kCostClasses[] = {CostClass::kAccelerated, CostClass::kPassedThrough};

// ---- JSON

void write_json(const ReportedProcess& process, const Statistics& statistics,
                const PathCounts& counts, Relays relays, Problems problems, TextWriter& out) {
  multipath::StatisticsJson json(process.pid, out);
  statistics.for_each(
      [&](EntryPoint entry_point, Verdict verdict, Mover mover, const Count& count) {
        json.add(entry_point_name(entry_point), verdict, mover, count);
      });
  for (const CostClass cost_class : kCostClasses)
    if (const Histogram& cost_ns = statistics.cost_ns(cost_class); cost_ns.count() != 0)
      json.add_cost(cost_class_name(cost_class), cost_ns);
  for (const PathCount& path : counts.all()) json.add(path);
  for (const RelayCount& relay : relays) json.add(relay);
  for (const std::string& problem : problems) json.add_problem(problem);
  json.end();
  out << "\n";
}

// ---- text

// Columns of the tables; numbers end a column's width after the last.
constexpr size_t kSecond = 30;
constexpr size_t kThird = 47;
constexpr size_t kFourth = 60;
constexpr size_t kNumber = 10;
constexpr size_t kBytes = 16;

uint64_t share_per_mille(const PathCount& path, std::span<const PathCount> paths) {
  uint64_t total = 0;
  for (const PathCount& other : paths)
    if (other.target == path.target && other.direction == path.direction) total += other.bytes;
  return total == 0 ? 0 : (path.bytes * 1000 + total / 2) / total;
}

void write_path_table(std::span<const PathCount> paths, TextWriter& out) {
  (out << "  path").tab(kSecond) << "direction";
  out.tab(kThird) << "mover";
  out.tab(kFourth).right("slices", kNumber).right("bytes", kBytes + 1).right("share", 9) << "\n";
  for (const PathCount& path : paths) {
    out << "  GPU " << path.target;
    if (path.via == path.target)
      out << " direct";
    else
      out << " through GPU " << path.via;
    const uint64_t share = share_per_mille(path, paths);
    out.tab(kSecond) << direction_name(path.direction);
    out.tab(kThird) << mover_name(path.mover);
    out.tab(kFourth).right(path.slices, kNumber).right(path.bytes, kBytes + 1).right(share / 10, 6)
        << "." << share % 10 << "%\n";
  }
}

void write_cost_table(const Statistics& statistics, TextWriter& out) {
  (out << "  cost of a call (ns)").tab(kSecond - kNumber);
  for (const Percentile& percentile : kPercentiles) out.right(percentile.key, kNumber);
  out.right("max", kNumber + 4) << "\n";
  for (const CostClass cost_class : kCostClasses) {
    const Histogram& cost_ns = statistics.cost_ns(cost_class);
    if (cost_ns.count() == 0) continue;
    (out << "  " << cost_class_name(cost_class)).tab(kSecond - kNumber);
    for (const Percentile& percentile : kPercentiles)
      out.right(cost_ns.quantile(percentile.per_mille), kNumber);
    out.right(cost_ns.max(), kNumber + 4) << "\n";
  }
}

// Only those of which there is something to say.
void write_relays(Relays relays, TextWriter& out) {
  for (const RelayCount& relay : relays) {
    if (relay.state == multipath::RelayState::kOpen &&
        relay.refusals + relay.shared + relay.congested == 0)
      continue;
    out << "  relay GPU " << relay.gpu << " is " << relay_state_name(relay.state) << ": "
        << relay.refusals << " times refused, " << relay.shared
        << " times shared with another program's kernels, " << relay.congested
        << " times late since its link was in use\n";
  }
}

void write_text(const ReportedProcess& process, const Statistics& statistics,
                const PathCounts& counts, Relays relays, TextWriter& out) {
  CopyTotals totals;
  statistics.for_each(
      [&](EntryPoint, Verdict verdict, Mover, const Count& count) { totals.add(verdict, count); });
  out << "braid: process " << process.pid << " (" << process.name << "): ";
  write_summary(totals, out);
  out << (statistics.empty() ? ". What its children copy, they report\n" : "\n");
  if (statistics.empty()) return;
  (out << "  entry point").tab(kSecond) << "outcome";
  out.tab(kThird) << "mover";
  out.tab(kFourth).right("calls", kNumber).right("bytes", kBytes + 1) << "\n";
  statistics.for_each(
      [&](EntryPoint entry_point, Verdict verdict, Mover mover, const Count& count) {
        (out << "  " << entry_point_name(entry_point)).tab(kSecond) << verdict_name(verdict);
        out.tab(kThird) << mover_name(mover);
        out.tab(kFourth).right(count.calls, kNumber).right(count.bytes, kBytes + 1) << "\n";
      });
  if (!counts.all().empty()) write_path_table(counts.all(), out);
  write_relays(relays, out);
  write_cost_table(statistics, out);
}

// ---- Prometheus

// Prometheus counts in seconds.
void write_seconds(uint64_t ns, TextWriter& out) {
  constexpr uint64_t kSecondNs = 1'000'000'000;
  out << ns / kSecondNs << ".";
  for (uint64_t step = kSecondNs / 10; step != 0; step /= 10) out << ns / step % 10;
  out << "\n";
}

void write_copy_family(std::string_view name, std::string_view help, int64_t pid,
                       const Statistics& statistics, uint64_t Count::*value, TextWriter& out) {
  write_head(name, "counter", help, out);
  statistics.for_each(
      [&](EntryPoint entry_point, Verdict verdict, Mover mover, const Count& count) {
        out << name << "{pid=\"" << pid << "\",entry_point=\"" << entry_point_name(entry_point)
            << "\",outcome=\"" << verdict_name(verdict) << "\",mover=\"" << mover_name(mover)
            << "\"} " << count.*value << "\n";
      });
}

void write_path_family(std::string_view name, std::string_view help, int64_t pid,
                       std::span<const PathCount> paths, uint64_t PathCount::*value,
                       TextWriter& out) {
  if (paths.empty()) return;
  write_head(name, "counter", help, out);
  for (const PathCount& path : paths)
    out << name << "{pid=\"" << pid << "\",target=\"" << path.target << "\",via=\"" << path.via
        << "\",direction=\"" << direction_name(path.direction) << "\",mover=\""
        << mover_name(path.mover) << "\"} " << path.*value << "\n";
}

template <typename Value>
void write_relay_family(std::string_view name, std::string_view type, std::string_view help,
                        int64_t pid, Relays relays, Value value, TextWriter& out) {
  if (relays.empty()) return;
  write_head(name, type, help, out);
  for (const RelayCount& relay : relays)
    out << name << "{pid=\"" << pid << "\",gpu=\"" << relay.gpu << "\"} "
        << std::invoke(value, relay) << "\n";
}

void write_relays_metrics(int64_t pid, Relays relays, TextWriter& out) {
  write_relay_family(
      "braid_relay_open", "gauge", "1 while the GPU relays; 0 while it rests or lacks buffers.",
      pid, relays,
      [](const RelayCount& relay) { return relay.state == multipath::RelayState::kOpen ? 1u : 0u; },
      out);
  write_relay_family("braid_relay_refusals_total", "counter",
                     "Copies of which the driver refused the relay's part.", pid, relays,
                     &RelayCount::refusals, out);
  write_relay_family("braid_relay_shared_total", "counter",
                     "Times that kernels left the relay to another program's.", pid, relays,
                     &RelayCount::shared, out);
  write_relay_family("braid_relay_congested_total", "counter",
                     "Copies that were late at the relay, whose link was in use.", pid, relays,
                     &RelayCount::congested, out);
}

void write_cost_summary(int64_t pid, const Statistics& statistics, TextWriter& out) {
  constexpr std::string_view kName = "braid_submit_cost_seconds";
  write_head(kName, "summary", "Time that copies spent in braid on the calling thread.", out);
  for (const CostClass cost_class : kCostClasses) {
    const Histogram& cost_ns = statistics.cost_ns(cost_class);
    if (cost_ns.count() == 0) continue;
    const auto begin = [&](std::string_view suffix) -> TextWriter& {
      return out << kName << suffix << "{pid=\"" << pid << "\",outcome=\""
                 << cost_class_name(cost_class) << "\"";
    };
    for (const Percentile& percentile : kPercentiles) {
      begin("") << ",quantile=\"" << percentile.quantile << "\"} ";
      write_seconds(cost_ns.quantile(percentile.per_mille), out);
    }
    begin("") << ",quantile=\"1\"} ";
    write_seconds(cost_ns.max(), out);
    begin("_sum") << "} ";
    write_seconds(cost_ns.sum(), out);
    begin("_count") << "} " << cost_ns.count() << "\n";
  }
}

void write_prometheus(const ReportedProcess& process, const Statistics& statistics,
                      const PathCounts& counts, Relays relays, TextWriter& out) {
  write_head("braid_process_info", "gauge", "The program that braid was put in front of.", out);
  out << "braid_process_info{pid=\"" << process.pid << "\",program=\"";
  write_escaped(process.name, out);
  out << "\"} 1\n";
  write_copy_family("braid_copies_total", "Copies, by what became of them.", process.pid,
                    statistics, &Count::calls, out);
  write_copy_family("braid_copy_bytes_total", "Bytes of those copies.", process.pid, statistics,
                    &Count::bytes, out);
  write_path_family("braid_path_slices_total", "Slices that each path has carried.", process.pid,
                    counts.all(), &PathCount::slices, out);
  write_path_family("braid_path_bytes_total", "Bytes that each path has carried.", process.pid,
                    counts.all(), &PathCount::bytes, out);
  write_relays_metrics(process.pid, relays, out);
  write_cost_summary(process.pid, statistics, out);
}

}  // namespace

void write_report(StatsFormat format, const ReportedProcess& process, const Statistics& statistics,
                  const PathCounts& counts, Relays relays, TextWriter& out, Problems problems) {
  switch (format) {
    case StatsFormat::kText: return write_text(process, statistics, counts, relays, out);
    case StatsFormat::kJson: return write_json(process, statistics, counts, relays, problems, out);
    case StatsFormat::kPrometheus:
      return write_prometheus(process, statistics, counts, relays, out);
    case StatsFormat::kNone: break;
  }
}

}  // namespace braid::preload
