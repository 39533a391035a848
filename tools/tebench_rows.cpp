// `braid tebench`: what a row comes to, as text and as JSON.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "tools/tebench.h"

namespace braid::tools {
namespace {

double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const double rank = share * static_cast<double>(sorted.size() - 1);
  const auto index = static_cast<size_t>(rank);
  if (index + 1 >= sorted.size()) return sorted.back();
  const double fraction = rank - static_cast<double>(index);
  return sorted[index] * (1 - fraction) + sorted[index + 1] * fraction;
}

struct Figures {
  uint64_t transfers = 0, late = 0;
  double gbps = 0, average_instant_gbps = 0, average_us = 0, average_tx_us = 0, p50_us = 0,
         p99_us = 0, p999_us = 0, cpu_s_per_gb = 0, within_slo = 1;
};

std::vector<double> sorted_tx_us(const TebenchRow& row) {
  std::vector<double> sorted;
  for (const TebenchThread& each : row.by_thread)
    sorted.insert(sorted.end(), each.tx_us.begin(), each.tx_us.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

Figures figures_of(const TebenchRow& row) {
  const std::vector<double> sorted = sorted_tx_us(row);
  const double count = std::max<double>(1, static_cast<double>(sorted.size()));
  const auto bytes = static_cast<double>(row.block_bytes * row.batch);
  const double gigabytes = bytes * static_cast<double>(sorted.size()) / 1e9;
  Figures all;
  all.transfers = sorted.size();
  for (const TebenchThread& each : row.by_thread) all.late += each.late;
  all.gbps = row.seconds > 0 ? gigabytes / row.seconds : 0;
  for (const double tx_us : sorted) all.average_instant_gbps += bytes / tx_us / 1e3 / count;
  all.average_us = row.seconds * 1e6 * row.threads / count;
  all.average_tx_us = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count;
  all.p50_us = percentile(sorted, 0.5);
  all.p99_us = percentile(sorted, 0.99);
  all.p999_us = percentile(sorted, 0.999);
  all.cpu_s_per_gb = gigabytes > 0 ? row.cpu_seconds / gigabytes : 0;
  const auto within = std::upper_bound(sorted.begin(), sorted.end(), row.slo_us) - sorted.begin();
  const auto ended = static_cast<double>(all.transfers + all.late);
  if (row.slo_us > 0) all.within_slo = ended > 0 ? static_cast<double>(within) / ended : 0;
  return all;
}

void print_group(const char* name, const TebenchRow& row, uint64_t deadline_us) {
  if (row.threads == 0) return;
  const Figures all = figures_of(row);
  fmt::print("  [deadline-{}] threads={}", name, row.threads);
  if (deadline_us != 0) fmt::print(" deadline_us={}", deadline_us);
  fmt::print(" operations={} throughput={:.6f} GB/s", all.transfers, all.gbps);
  if (deadline_us != 0) fmt::print(" late={}", all.late);
  fmt::print("\n");
}

}  // namespace

TebenchRow of_threads(const TebenchRow& row, size_t first, size_t count) {
  TebenchRow part = row;
  const auto begin = row.by_thread.begin() + static_cast<ptrdiff_t>(first);
  part.by_thread.assign(begin, begin + static_cast<ptrdiff_t>(count));
  part.threads = static_cast<int>(count);
  part.shares_cpu = true;
  part.verified_bytes = 0;
  return part;
}

void print_head() {
  fmt::print("{:<14}{:<8}{:<14}{:<18}{:<14}{:<14}{:<14}{:<14}{:<14}{:<9}{:<14}{:<10}\n",
             "BlkSize (B)", "Batch", "BW (GB/s)", "Avg Inst GB/s", "Avg Lat (us)", "Avg Tx (us)",
             "P99 Tx (us)", "P999 Tx (us)", "P50 Tx (us)", "Threads", "Verified (B)", "CPU s/GB");
  fmt::print("{:-<160}\n", "");
}

void print_row(const TebenchRow& row) {
  const Figures all = figures_of(row);
  fmt::print(
      "{:<14}{:<8}{:<14.6f}{:<18.6f}{:<14.1f}{:<14.1f}{:<14.1f}{:<14.1f}{:<14.1f}{:<9}{:<14}{:<10}",
      row.block_bytes, row.batch, all.gbps, all.average_instant_gbps, all.average_us,
      all.average_tx_us, all.p99_us, all.p999_us, all.p50_us, row.threads, row.verified_bytes,
      row.shares_cpu ? "-" : fmt::format("{:.3f}", all.cpu_s_per_gb));
  if (!row.what.empty()) fmt::print("  {}", row.what);
  if (row.slo_us > 0) fmt::print(", {:.4f} within {:.0f} us", all.within_slo, row.slo_us);
  if (all.late > 0) fmt::print("  {} late", all.late);
  fmt::print("\n");
  std::fflush(stdout);
}

void print_deadline_groups(const TebenchRow& row, const TebenchOptions& options) {
  if (options.deadline_us == 0) return;
  const int wanted = options.deadline_tight_threads;
  const auto tight = static_cast<size_t>(wanted < 0 ? row.threads : std::min(wanted, row.threads));
  print_group("tight", of_threads(row, 0, tight), options.deadline_us);
  print_group("loose", of_threads(row, tight, row.by_thread.size() - tight), 0);
}

nlohmann::ordered_json to_json(const TebenchRow& row) {
  const Figures all = figures_of(row);
  nlohmann::ordered_json json = {{"what", row.what},
                                 {"block_bytes", row.block_bytes},
                                 {"batch", row.batch},
                                 {"threads", row.threads},
                                 {"transfers", all.transfers},
                                 {"late", all.late},
                                 {"seconds", row.seconds},
                                 {"gbps", all.gbps},
                                 {"average_instant_gbps", all.average_instant_gbps},
                                 {"average_latency_us", all.average_us},
                                 {"average_tx_us", all.average_tx_us},
                                 {"p50_tx_us", all.p50_us},
                                 {"p99_tx_us", all.p99_us},
                                 {"p999_tx_us", all.p999_us},
                                 {"verified_bytes", row.verified_bytes},
                                 {"cpu_s_per_gb", nullptr},
                                 {"cpu_of_both_sides", row.has_targets_cpu}};
  if (!row.shares_cpu) json["cpu_s_per_gb"] = all.cpu_s_per_gb;
  if (row.slo_us > 0) {
    json["slo_us"] = row.slo_us;
    json["within_slo"] = all.within_slo;
  }
  return json;
}

}  // namespace braid::tools
