// The figures and the table of the paper's evaluation.
#include <fmt/format.h>

#include <algorithm>

#include "transfer/sim/figures.h"

namespace braid::transfer::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kKiB = 1024, kMiB = 1 << 20;

/// The results of one case: every method, and the bound that cannot be beaten.
struct Case {
  std::vector<Measured> measured;  // by method, in the order of all_methods()
  double oracle_gbps = 0;
  double oracle_us = 0;

  double best_other_p99_us() const {
    double best = measured[1].p99_us();
    for (size_t i = 1; i < measured.size(); ++i) best = std::min(best, measured[i].p99_us());
    return best;
  }
  double best_other_gbps() const {
    double best = 0;
    for (size_t i = 1; i < measured.size(); ++i) best = std::max(best, measured[i].gbps);
    return best;
  }
};

// While one thread is between two batches, others may use its part. So the bound is the smaller one
// of the sum of what each would get alone and the rate of all together.
void find_oracle(Case& found, const Cluster& cluster, const std::vector<Demand>& demands,
                 double batch_bytes, size_t requests) {
  Network network(cluster, 1);
  double together = 0, alone = 0;
  for (const double gbps : optimum_gbps(network, demands)) together += gbps;
  // Requests are submitted while those before them are under way.
  const double submit_us = static_cast<double>(requests) * cluster.submit_us.value;
  for (const Demand& demand : demands) {
    const double us = std::max(
        submit_us, optimum_us(cluster, batch_bytes, optimum_gbps(network, {demand}).front()));
    alone += batch_bytes / us / 1e3;
  }
  found.oracle_gbps = std::min(together, alone);
  found.oracle_us = static_cast<double>(demands.size()) * batch_bytes / found.oracle_gbps / 1e3;
}

Case run_case(const Cluster& cluster, const Loop& given, int seeds) {
  Case found;
  uint64_t batch_bytes = 0;
  for (const uint64_t size_bytes : given.sizes_bytes) batch_bytes += size_bytes;
  Loop loop = given;
  // At least some 20 batches of each thread.
  const uint64_t each_ns = batch_bytes * static_cast<uint64_t>(given.threads) / 100;
  loop.end_ns = std::max(4 * kMs, 20 * each_ns);
  std::vector<Demand> demands;
  for (const Method method : all_methods()) {
    found.measured.push_back(over_seeds(seeds, [&](uint64_t seed) {
      Trial trial(cluster, method, seed);
      demands = trial.add(loop);
      while (!trial.threads().are_all_done())
        trial.network().run_until_ns(trial.network().now_ns() + loop.end_ns);
      return trial.threads().between(loop.end_ns / 4, loop.end_ns);
    }));
  }
  find_oracle(found, cluster, demands, static_cast<double>(batch_bytes), loop.sizes_bytes.size());
  return found;
}

std::vector<std::string> columns(const std::string& first) {
  std::vector<std::string> names = {first};
  for (const Method method : all_methods()) names.push_back(method_name(method));
  names.push_back("oracle");
  return names;
}

std::vector<Series> series() {
  std::vector<Series> all;
  for (const Method method : all_methods()) all.push_back({method_name(method), {}});
  all.push_back({"oracle", {}});
  return all;
}

/// A table and a plot of one quantity, by a number.
struct Sheet {
  Sheet(const std::string& title, const std::string& first) : table{title, columns(first), {}} {
    plot.title = title;
    plot.series = series();
  }
  void add(const std::string& name, double x, const std::vector<double>& values) {
    table.rows.push_back({name});
    for (size_t i = 0; i < values.size(); ++i) {
      table.rows.back().push_back(fmt::format("{:.4g}", values[i]));
      plot.series[i].points.emplace_back(x, values[i]);
    }
  }
  Table table;
  Plot plot;
};

std::vector<double> rates(const Case& found) {
  std::vector<double> values;
  for (const Measured& measured : found.measured) values.push_back(measured.gbps);
  values.push_back(found.oracle_gbps);
  return values;
}

std::vector<double> times(const Case& found) {
  std::vector<double> values;
  for (const Measured& measured : found.measured) values.push_back(measured.p99_us());
  values.push_back(found.oracle_us);
  return values;
}

/// How braid compares with the others in some cases.
struct Standing {
  double least_of_best = 1e9, least_of_oracle = 1e9;
  double most_of_p99 = 0;
  std::string where_best, where_oracle, where_p99;
  void add(const std::string& name, const Case& found, bool counts_for_oracle) {
    const double braid = found.measured.front().gbps;
    const double of_best = braid / found.best_other_gbps();
    const double of_oracle = braid / found.oracle_gbps;
    if (of_best < least_of_best) {
      least_of_best = of_best;
      where_best = name;
    }
    const double of_p99 = found.measured.front().p99_us() / found.best_other_p99_us();
    if (of_p99 > most_of_p99) {
      most_of_p99 = of_p99;
      where_p99 = name;
    }
    if (!counts_for_oracle || of_oracle >= least_of_oracle) return;
    least_of_oracle = of_oracle;
    where_oracle = name;
  }
  void tell(Figure& figure) const {
    figure.verdicts.push_back(
        {"A10", "of the best other method, at " + where_best, least_of_best, 0.98, true, ""});
    if (!where_oracle.empty())
      figure.verdicts.push_back(
          {"A10", "of the oracle, at " + where_oracle, least_of_oracle, 0.93, true, ""});
    if (least_of_best < 0.9995)
      figure.notes.push_back(
          fmt::format("braid loses to the best other method by up to {:.1f} %, "
                      "at {}.",
                      100 * (1 - least_of_best), where_best));
    if (most_of_p99 > 1)
      figure.notes.push_back(
          fmt::format("braid's P99 is longer than that of the best other method by up to {:.1f} %, "
                      "at {}.",
                      100 * (most_of_p99 - 1), where_p99));
  }
};

}  // namespace

Figure tebench(const Clusters& clusters, int seeds) {
  Figure figure{"tebench", "Throughput and latency by block size (figure 3)", "", {}, {}, {}, {}};
  figure.paper =
      "TENT over TE: throughput +32.9 % for reads and +33.7 % for writes, P99 up to 30.5 % lower "
      "(section 4.1; its figure has no table of numbers).";
  figure.notes.push_back(
      "Two threads, each with host memory of its own NUMA node at both ends; "
      "synchronous requests, one in a batch.");
  Standing standing;
  for (const Direction direction : {Direction::kRead, Direction::kWrite}) {
    const std::string what = direction == Direction::kRead ? "read" : "write";
    Sheet gbps("GB/s, " + what, "block"), p99("P99 in us, " + what, "block");
    double gain = 0, lower = 0;
    int sizes = 0;
    for (uint64_t size = 4 * kKiB; size <= 64 * kMiB; size *= 4, ++sizes) {
      Loop loop;
      loop.threads = 2;
      loop.sizes_bytes = {size};
      loop.direction = direction;
      const Case found = run_case(clusters.testbed, loop, seeds);
      gbps.add(size_text(size), static_cast<double>(size) / 1024, rates(found));
      p99.add(size_text(size), static_cast<double>(size) / 1024, times(found));
      standing.add(what + "s of " + size_text(size), found, size >= 16 * kMiB);
      gain += found.measured[0].gbps / found.measured[1].gbps - 1;
      lower = std::max(lower, 1 - found.measured[0].p99_us() / found.measured[1].p99_us());
    }
    gbps.plot.name = "tebench-" + what + "-gbps";
    gbps.plot.y_label = "GB/s";
    p99.plot.name = "tebench-" + what + "-p99";
    p99.plot.y_label = "us";
    for (Plot* plot : {&gbps.plot, &p99.plot}) {
      plot->x_label = "block, KB";
      plot->is_x_logarithmic = plot->is_y_logarithmic = true;
    }
    figure.tables.insert(figure.tables.end(), {gbps.table, p99.table});
    figure.plots.insert(figure.plots.end(), {gbps.plot, p99.plot});
    figure.notes.push_back(fmt::format(
        "{}s, braid over Mooncake TE: throughput {:+.1f} % (the mean over the sizes; the paper: "
        "{:+.1f} %), P99 up to {:.1f} % lower (the paper: 30.5 %).",
        what, 100 * gain / sizes, direction == Direction::kRead ? 32.9 : 33.7, 100 * lower));
  }
  standing.tell(figure);
  return figure;
}

Figure kv(const Clusters& clusters, int seeds) {
  Figure figure{"kv", "KV cache of DeepSeek-R1-W8A8, 4K tokens (figure 4)", "", {}, {}, {}, {}};
  figure.paper =
      "61 layers of 32 blocks of 128 KB and 16 KB, a request for each; up to 4.07 times TE's "
      "throughput, P99 of a layer 31.3 % to 85.6 % lower (section 4.2).";
  figure.notes.push_back(
      "A batch is a layer; each thread submits the next when one has ended. "
      "Threads' memory lies in host memory of both NUMA nodes, in turn.");
  Loop loop;
  for (int block = 0; block < 32; ++block)
    loop.sizes_bytes.insert(loop.sizes_bytes.end(), {128 * kKiB, 16 * kKiB});
  Sheet gbps("GB/s", "threads"), p99("P99 of a layer in us", "threads");
  Standing standing;
  double most_gain = 0, lower_least = 1, lower_most = 0;
  for (const int threads : {1, 2, 4, 8, 16}) {
    loop.threads = threads;
    const Case found = run_case(clusters.testbed, loop, seeds);
    const std::string name = fmt::format("{}", threads);
    gbps.add(name, threads, rates(found));
    p99.add(name, threads, times(found));
    standing.add(fmt::format("r1-w8a8 with {} threads", threads), found, false);
    const Measured &braid = found.measured[0], &mooncake = found.measured[1];
    most_gain = std::max(most_gain, braid.gbps / mooncake.gbps);
    const double ratio = braid.p99_us() / mooncake.p99_us();
    lower_least = std::min(lower_least, 1 - ratio);
    lower_most = std::max(lower_most, 1 - ratio);
    if (threads == 16)
      figure.notes.push_back(fmt::format(
          "16 threads that each wait for their own layer take {:.0f} us on the mean, in whatever "
          "order they are served: bytes in flight by the capacity. A P99 of that, which is the "
          "best, "
          "is {:.2f} of the one that this model gives Mooncake TE.",
          found.oracle_us, found.oracle_us / mooncake.p99_us()));
    if (threads == 16)
      figure.verdicts.push_back(
          {"A11", "P99 of a layer with 16 threads, of Mooncake TE's", ratio, 0.7, false, ""});
  }
  gbps.plot.name = "kv-gbps";
  gbps.plot.y_label = "GB/s";
  p99.plot.name = "kv-p99";
  p99.plot.y_label = "us";
  for (Plot* plot : {&gbps.plot, &p99.plot}) {
    plot->x_label = "threads";
    plot->is_x_logarithmic = true;
  }
  figure.tables = {gbps.table, p99.table};
  figure.plots = {gbps.plot, p99.plot};
  figure.notes.push_back(fmt::format(
      "braid over Mooncake TE: up to {:.2f} times the throughput (the paper: 4.07), P99 of a layer "
      "{:.1f} % to {:.1f} % lower (the paper: 31.3 % to 85.6 %).",
      most_gain, 100 * lower_least, 100 * lower_most));
  standing.tell(figure);
  return figure;
}

namespace {

/// The experts' matrices are nearly all bytes of these models.
struct Model {
  const char* name;
  uint64_t layers, hidden, experts, intermediate;
  double paper_te_s, paper_tent_s;
};

// Each of 8 GPUs loads its eighth of every matrix, layer by layer.
Loop weights_of(const Model& model, const Cluster& cluster) {
  constexpr uint64_t kRanks = 8, kBytes = 2;  // bfloat16
  Loop loop;
  loop.threads = kRanks;
  for (uint64_t i = 0; i < 3 * model.experts; ++i)
    loop.sizes_bytes.push_back(model.hidden * model.intermediate * kBytes / kRanks);
  loop.direction = Direction::kRead;
  loop.memory = [&cluster](int rank) {
    const Place gpu = cluster.gpu_place(rank);
    return std::pair{Memory{0, gpu}, Memory{1, cluster.host_place(gpu.numa_node)}};
  };
  return loop;
}

}  // namespace

Figure weights(const Clusters& clusters, int seeds) {
  Figure figure{"weights", "Weights by Checkpoint Engine (table 1)", "", {}, {}, {}, {}};
  figure.paper = "seconds of a whole update, TE and TENT: 28.56 and 18.97, 14.75 and 11.26.";
  figure.notes = {
      "Only the bytes on the network: the paper's seconds also hold what the inference engine does "
      "with them. Ratios compare, seconds do not.",
      "A batch is the experts of a layer, three matrices each, an eighth to each GPU (tensor "
      "parallelism of 8), from the other host's memory; one layer is simulated, and the others "
      "taken for equal."};
  const Model models[] = {{"Qwen3-235B-A22B", 94, 4096, 128, 1536, 28.56, 18.97},
                          {"GLM-4.5-Air", 45, 4096, 128, 1408, 14.75, 11.26}};
  Table table{"Seconds", columns("model"), {}};
  Table ratios{"TE's time by ours", {"model", "the paper's TENT", "braid"}, {}};
  for (const Model& model : models) {
    std::vector<std::string> row = {model.name};
    std::vector<double> seconds;
    std::vector<Demand> demands;
    Loop loop = weights_of(model, clusters.testbed);
    for (const Method method : all_methods()) {
      const Measured measured = over_seeds(seeds, [&](uint64_t seed) {
        Trial trial(clusters.testbed, method, seed);
        loop.end_ns = 10'000;  // one batch each, of much longer
        demands = trial.add(loop);
        while (!trial.threads().are_all_done())
          trial.network().run_until_ns(trial.network().now_ns() + 100 * kMs);
        return trial.threads().between(0, trial.network().now_ns());
      });
      seconds.push_back(measured.percentile_us(1.0) * 1e-6 * static_cast<double>(model.layers));
      row.push_back(fmt::format("{:.3f}", seconds.back()));
    }
    Network network(clusters.testbed, 1);
    const double gbps = optimum_gbps(network, demands).front();
    const double bytes = static_cast<double>(loop.sizes_bytes.size() * loop.sizes_bytes.front());
    row.push_back(fmt::format("{:.3f}", bytes / gbps * 1e-9 * static_cast<double>(model.layers)));
    table.rows.push_back(row);
    ratios.rows.push_back({model.name, fmt::format("{:.2f}", model.paper_te_s / model.paper_tent_s),
                           fmt::format("{:.2f}", seconds[1] / seconds[0])});
  }
  figure.tables = {table, ratios};
  return figure;
}

}  // namespace braid::transfer::sim
