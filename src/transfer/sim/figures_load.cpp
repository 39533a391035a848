// Figures of shared load: tiers, hosts, urgencies, processes.
#include <fmt/format.h>

#include <algorithm>

#include "transfer/sim/figures.h"

namespace braid::transfer::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kKiB = 1024, kMiB = 1 << 20;

/// 1: all have the same; 1/n: one has all.
/// Source: Jain, Chiu and Hawe, A Quantitative Measure of Fairness, DEC-TR-301, 1984.
double jain(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(values.size()) * squares) : 0;
}

double total(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace

Figure tiers_figure(const Clusters& clusters, int seeds) {
  Figure figure{"tiers", "Memory of one GPU, over near and far NICs", "", {}, {}, {}, {}};
  figure.notes.push_back(
      "From GPU 0 to GPU 0 of the other host, one thread. Tier 1 is one NIC, "
      "tier 2 the three others of the NUMA node, tier 3 those of the other.");
  const Cluster& cluster = clusters.testbed;
  Table table{"Bytes by tier, and GB/s",
              {"size", "braid, tier 1", "tier 2", "tier 3", "braid GB/s", "round robin in tier 1",
               "product rule", "oracle"},
              {}};
  for (const uint64_t size : {64 * kKiB, 256 * kKiB, kMiB, 16 * kMiB, 256 * kMiB}) {
    std::vector<std::string> row = {size_text(size)};
    std::vector<std::string> rates;
    double best = 0;
    for (const Method method : {Method::kBraid, Method::kRoundRobin, Method::kProduct}) {
      std::vector<double> bytes(3, 0);
      const Measured measured = over_seeds(seeds, [&](uint64_t seed) {
        Trial trial(cluster, method, seed);
        Loop loop;
        loop.sizes_bytes = {size};
        loop.memory = [&](int) {
          return std::pair{Memory{0, cluster.gpu_place(0)}, Memory{1, cluster.gpu_place(0)}};
        };
        loop.end_ns = std::max(2 * kMs, size / 2);
        const std::vector<Demand> demands = trial.add(loop);
        trial.network().run_until_ns(2 * loop.end_ns);
        std::vector<Place> nics;
        for (int nic = 0; nic < cluster.nic_count(); ++nic) nics.push_back(cluster.nic_place(nic));
        const std::vector<uint8_t> tier = tiers(cluster.gpu_place(0), nics);
        for (int nic = 0; nic < cluster.nic_count(); ++nic)
          bytes[tier[static_cast<size_t>(nic)]] +=
              static_cast<double>(trial.process().delivered_bytes(nic));
        best = optimum_gbps(trial.network(), demands).front();
        return trial.threads().between(loop.end_ns / 4, loop.end_ns);
      });
      if (method == Method::kBraid)
        for (const double one : bytes)
          row.push_back(fmt::format("{:.0f} %", 100 * one / total(bytes)));
      rates.push_back(fmt::format("{:.4g}", measured.gbps));
    }
    row.insert(row.end(), rates.begin(), rates.end());
    row.push_back(fmt::format("{:.4g}", static_cast<double>(size) / 1e3 /
                                            optimum_us(cluster, static_cast<double>(size), best)));
    table.rows.push_back(row);
  }
  figure.tables = {table};
  return figure;
}

Figure incast(const Clusters& clusters, int seeds) {
  Figure figure{"incast", "16 hosts write to one", "", {}, {}, {}, {}};
  figure.notes.push_back(
      "Hosts as those of the testbed; two threads each, 1 MB. The senders know "
      "nothing of each other.");
  constexpr int kSenders = 16;
  Cluster cluster = clusters.testbed;
  cluster.hosts = kSenders + 1;
  const int receiver = kSenders;
  Table table{"At the receiver", {"method", "GB/s", "of its NICs", "Jain", "P50 us", "P99 us"}, {}};
  for (const Method method : all_methods()) {
    std::vector<double> rates(kSenders, 0);
    const Measured measured = over_seeds(seeds, [&](uint64_t seed) {
      Trial trial(cluster, method, seed);
      constexpr uint64_t kEnd = 20 * kMs;
      for (int host = 0; host < kSenders; ++host) {
        const size_t process = host == 0 ? 0 : trial.add_process(host);
        Loop loop;
        loop.threads = 2;
        loop.sizes_bytes = {kMiB};
        loop.begin_ns = static_cast<uint64_t>(host) * 1100;
        loop.end_ns = kEnd;
        loop.memory = [&cluster, host, receiver](int thread) {
          const Place place = cluster.host_place(thread % cluster.numa_nodes);
          return std::pair{Memory{host, place}, Memory{receiver, place}};
        };
        trial.add(loop, process);
      }
      trial.network().run_until_ns(kEnd + 10 * kMs);
      for (size_t i = 0; i < kSenders; ++i)
        rates[i] += trial.threads().between(kEnd / 4, kEnd, 2 * i, 2).gbps / seeds;
      return trial.threads().between(kEnd / 4, kEnd);
    });
    const double capacity = cluster.nic_gbps.value * cluster.nic_count();
    table.rows.push_back(
        {method_name(method), fmt::format("{:.4g}", total(rates)),
         fmt::format("{:.3f}", total(rates) / capacity), fmt::format("{:.3f}", jain(rates)),
         fmt::format("{:.0f}", measured.p50_us()), fmt::format("{:.0f}", measured.p99_us())});
  }
  figure.tables = {table};
  return figure;
}

namespace {

/// Urgent requests of 4 KB, and bulk of 64 MB, each alone and side by side.
struct Beside {
  double alone_p99_us = 0, beside_p99_us = 0;
  double bulk_alone_gbps = 0, bulk_beside_gbps = 0;
};

Beside run_beside(const Cluster& cluster, Method method, uint64_t end_ns, uint64_t pause_ns,
                  int seeds) {
  Beside found;
  for (int what = 1; what <= 3; ++what) {  // bits: urgent, bulk
    double bulk_gbps = 0;
    const Measured measured = over_seeds(seeds, [&](uint64_t seed) {
      Trial trial(cluster, method, seed);
      Loop urgent;
      urgent.sizes_bytes = {4 * kKiB};
      urgent.urgency = Urgency::kUrgent;
      urgent.pause_ns = pause_ns;
      urgent.begin_ns = end_ns / 8;
      urgent.end_ns = (what & 1) != 0 ? end_ns : 0;
      trial.add(urgent);
      Loop bulk;
      bulk.threads = (what & 2) != 0 ? 4 : 0;
      bulk.sizes_bytes = {64 * kMiB};
      bulk.end_ns = end_ns;
      bulk.first_source = 1;
      trial.add(bulk);
      trial.network().run_until_ns(end_ns);
      bulk_gbps += trial.timeline().gbps(end_ns / 4, end_ns) / seeds;
      return trial.threads().between(end_ns / 4, end_ns, 0, 1);
    });
    if (what == 1) found.alone_p99_us = measured.p99_us();
    if (what == 2) found.bulk_alone_gbps = bulk_gbps;
    if (what == 3) {
      found.beside_p99_us = measured.p99_us();
      found.bulk_beside_gbps = bulk_gbps - measured.gbps;
    }
  }
  return found;
}

}  // namespace

Figure urgent(const Clusters& clusters, int seeds) {
  Figure figure{"urgent", "4 KB urgent beside 64 MB bulk", "", {}, {}, {}, {}};
  figure.notes.push_back("One thread of urgent requests with pauses, four threads of bulk.");
  Table table{"P99 of the urgent requests, and what bulk keeps of what it has alone",
              {"rails", "method", "alone, us", "beside bulk, us", "bulk keeps"},
              {}};
  for (const Method method : all_methods()) {
    for (const Cluster* cluster : {&clusters.limited, &clusters.testbed}) {
      const bool is_limited = cluster == &clusters.limited;
      const Beside found = run_beside(*cluster, method, is_limited ? 16'000 * kMs : 60 * kMs,
                                      is_limited ? 2 * kMs : 20'000, seeds);
      const double keeps = found.bulk_beside_gbps / found.bulk_alone_gbps;
      table.rows.push_back(
          {cluster->name, method_name(method), fmt::format("{:.1f}", found.alone_p99_us),
           found.beside_p99_us > 0 ? fmt::format("{:.1f}", found.beside_p99_us) : "none ended",
           fmt::format("{:.3f}", keeps)});
      if (method != Method::kBraid) continue;
      const double slice_us = 64 * 1.024 / cluster->nic_gbps.value;
      if (is_limited)
        figure.verdicts.push_back({"A8", "limited rails: urgent P99 beyond unloaded, in slices",
                                   (found.beside_p99_us - found.alone_p99_us) / slice_us, 1.2,
                                   false, ""});
      else
        figure.verdicts.push_back({"A8", "testbed: urgent P99, times unloaded",
                                   found.beside_p99_us / found.alone_p99_us, 3, false, ""});
      figure.verdicts.push_back({"A8", cluster->name + ": bulk keeps", keeps, 0.95, true, ""});
    }
  }
  figure.tables = {table};
  return figure;
}

namespace {

struct Shared {
  std::vector<double> gbps;  // by process
  double alone_ms = 0;       // until the last one has all
};

// The first process has `threads_first` threads, the others `threads_each`. All but the last end at
// half time.
Shared run_shared(const Cluster& cluster, Method method, bool has_table, int processes,
                  int threads_first, int threads_each, uint64_t seed) {
  constexpr uint64_t kHalf = 40 * kMs, kEnd = 80 * kMs;
  Trial trial(cluster, method, seed);
  while (static_cast<int>(trial.processes().size()) < processes) trial.add_process();
  // Delivered bytes, not parts of batches: where others end, those under way become faster.
  std::vector<Timeline> rates(static_cast<size_t>(processes), Timeline(kMs));
  for (int i = 0; i < processes; ++i) {
    Loop loop;
    loop.threads = i == 0 ? threads_first : threads_each;
    loop.sizes_bytes = {4 * kMiB};
    loop.begin_ns = static_cast<uint64_t>(i) * 1300;
    loop.end_ns = i + 1 == processes ? kEnd : kHalf;
    trial.add(loop, static_cast<size_t>(i));
    Timeline& rate = rates[static_cast<size_t>(i)];
    trial.process(static_cast<size_t>(i)).on_delivered = [&rate](uint64_t bytes, uint64_t now_ns) {
      rate.add(bytes, now_ns);
    };
  }
  ShareTable table(trial.network(), trial.processes());
  if (has_table) table.run_until(kEnd);
  trial.network().run_until_ns(kEnd + 20 * kMs);
  Shared shared;
  for (const Timeline& rate : rates) shared.gbps.push_back(rate.gbps(kHalf / 4, kHalf));
  // Relative to its rate in the end, when it is alone; before that, others finish what they had
  // begun.
  const Timeline& last = rates.back();
  const double alone = last.gbps(kEnd - 20 * kMs, kEnd);
  for (uint64_t at_ns = kHalf; at_ns < kEnd - 5 * kMs; at_ns += kMs) {
    shared.alone_ms = static_cast<double>(at_ns - kHalf) / kMs;
    if (last.gbps(at_ns, at_ns + 2 * kMs) >= 0.95 * alone) break;
  }
  return shared;
}

}  // namespace

Figure share(const Clusters& clusters, int seeds) {
  Figure figure{"share", "Processes that share the NICs of a host", "", {}, {}, {}, {}};
  figure.notes.push_back(
      "Writes of 4 MB; every process but the last ends at half time. NICs serve the queue pairs of "
      "processes in turn, so the network itself is fair to processes that keep them full: the "
      "table of shares matters where they do not.");
  Table table{
      "",
      {"processes", "method", "table", "Jain", "of all NICs", "alone: ms until it has 95 %"},
      {}};
  table.title = "Throughput of each process";
  const Cluster& cluster = clusters.testbed;
  const double capacity = cluster.nic_gbps.value * cluster.nic_count();
  struct Row {
    int processes, threads_first, threads_each;
    const char* name;
  };
  for (const Row& row :
       {Row{4, 32, 4, "4, one with 8 times the threads"}, Row{8, 4, 4, "8 alike"}}) {
    for (const Method method : {Method::kBraid, Method::kMooncake, Method::kRoundRobin}) {
      for (const bool has_table : {true, false}) {
        if (has_table && method != Method::kBraid) continue;
        double fair = 0, sum = 0, alone_ms = 0;
        for (int seed = 1; seed <= seeds; ++seed) {
          const Shared shared =
              run_shared(cluster, method, has_table, row.processes, row.threads_first,
                         row.threads_each, static_cast<uint64_t>(seed));
          fair += jain(shared.gbps) / seeds;
          sum += total(shared.gbps) / capacity / seeds;
          alone_ms = std::max(alone_ms, shared.alone_ms);
        }
        table.rows.push_back({row.name, method_name(method), has_table ? "yes" : "no",
                              fmt::format("{:.3f}", fair), fmt::format("{:.3f}", sum),
                              fmt::format("{:.0f}", alone_ms)});
        if (!has_table) continue;
        const std::string who = fmt::format("{} processes: ", row.processes);
        figure.verdicts.push_back({"A9", who + "Jain", fair, 0.97, true, ""});
        figure.verdicts.push_back({"A9", who + "sum, of all NICs", sum, 0.95, true, ""});
        figure.verdicts.push_back(
            {"A9", who + "one left alone has 95 % after", alone_ms, 5, false, "ms"});
      }
    }
  }
  figure.tables = {table};
  return figure;
}

}  // namespace braid::transfer::sim
