// Rails that are slow, vanish and flap.
#include <fmt/format.h>

#include <algorithm>

#include "transfer/sim/figures.h"

namespace braid::transfer::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;

double capacity_gbps(const Cluster& cluster) {
  return cluster.nic_gbps.value * cluster.nic_count();
}

/// Enough threads to fill all rails, with requests that take some milliseconds on slow ones.
Loop busy_loop(uint64_t end_ns) {
  Loop loop;
  loop.threads = 16;
  loop.sizes_bytes = {1 << 20};
  loop.end_ns = end_ns;
  return loop;
}

// The time after which every window until `end_ns` carries at least `gbps`.
double ms_until(const Timeline& timeline, uint64_t begin_ns, uint64_t end_ns, uint64_t window_ns,
                double gbps) {
  uint64_t from_ns = begin_ns;
  for (uint64_t at_ns = begin_ns; at_ns + window_ns <= end_ns; at_ns += timeline.bin_ns())
    if (timeline.gbps(at_ns, at_ns + window_ns) < gbps) from_ns = at_ns + timeline.bin_ns();
  return static_cast<double>(from_ns - begin_ns) / kMs;
}

Series bins(const char* name, const Timeline& timeline, uint64_t bin_ns, uint64_t end_ns) {
  Series series{name, {}};
  for (uint64_t at_ns = 0; at_ns < end_ns; at_ns += bin_ns)
    series.points.emplace_back(static_cast<double>(at_ns) / kMs,
                               timeline.gbps(at_ns, at_ns + bin_ns));
  return series;
}

struct Slow {
  double gbps = 0;
  double p99_us = 0;
  bool has_ended = false;
};

Slow run_slow(const Cluster& cluster, Method method, double part, uint64_t end_ns, int seeds) {
  Slow slow;
  const Measured measured = over_seeds(seeds, [&](uint64_t seed) {
    Trial trial(cluster, method, seed);
    trial.set_speed(0, part);
    trial.add(busy_loop(end_ns));
    trial.network().run_until_ns(end_ns);
    slow.gbps += trial.timeline().gbps(end_ns / 4, end_ns) / seeds;
    return trial.threads().between(end_ns / 4, end_ns);
  });
  slow.p99_us = measured.p99_us();
  slow.has_ended = !measured.took_us.empty();
  return slow;
}

void slow_table(Figure& figure, const Cluster& cluster, uint64_t end_ns, int seeds,
                std::vector<std::vector<Slow>>& found) {
  std::vector<std::string> columns = {"of its capacity"};
  for (const Method method : all_methods()) columns.push_back(method_name(method));
  Table gbps{
      fmt::format("GB/s on `{}`, 16 threads of 1 MB, one rail slow", cluster.name), columns, {}};
  gbps.columns.push_back("oracle");
  Table p99{fmt::format("P99 of 1 MB in ms on `{}`", cluster.name), columns, {}};
  for (const double part : {1.0, 0.5, 0.1, 0.01}) {
    gbps.rows.push_back({fmt::format("{:g}", part)});
    p99.rows.push_back({fmt::format("{:g}", part)});
    found.emplace_back();
    for (const Method method : all_methods()) {
      const Slow slow = run_slow(cluster, method, part, end_ns, seeds);
      found.back().push_back(slow);
      gbps.rows.back().push_back(fmt::format("{:.4g}", slow.gbps));
      p99.rows.back().push_back(slow.has_ended ? fmt::format("{:.4g}", slow.p99_us / 1000)
                                               : "none ended");
    }
    const double left = capacity_gbps(cluster) - (1 - part) * cluster.nic_gbps.value;
    gbps.rows.back().push_back(fmt::format("{:.4g}", left));
  }
  figure.tables.insert(figure.tables.end(), {gbps, p99});
}

}  // namespace

Figure slow_rail(const Clusters& clusters, int seeds) {
  Figure figure{"slow-rail", "One rail is slow", "", {}, {}, {}, {}};
  std::vector<std::vector<Slow>> limited, testbed;
  slow_table(figure, clusters.limited, 10'000 * kMs, seeds, limited);
  slow_table(figure, clusters.testbed, 20 * kMs, seeds, testbed);
  double least = 1e9;
  for (const auto* cases : {&limited, &testbed}) {
    for (const std::vector<Slow>& found : *cases) {
      double best = 0;
      for (size_t i = 1; i < found.size(); ++i) best = std::max(best, found[i].gbps);
      least = std::min(least, found[0].gbps / best);
    }
  }
  const double left = capacity_gbps(clusters.limited) - 0.9 * clusters.limited.nic_gbps.value;
  const std::vector<Slow>& tenth = limited[2];
  figure.verdicts = {
      {"A4", "a rail at 10 %: of the sum of all", tenth[0].gbps / left, 0.90, true, ""},
      {"A4", "a rail at 10 %: times round robin", tenth[0].gbps / tenth[2].gbps, 5, true, ""},
      {"A4", "a rail at 10 %: P99 of 1 MB, of round robin's", tenth[0].p99_us / tenth[2].p99_us,
       0.3, false, ""},
      {"A10", "a slow rail: of the best other method, in the worst case", least, 0.98, true, ""},
      {"A10", "a rail at half: times round robin, limited rails",
       limited[1][0].gbps / limited[1][2].gbps, 1.5, true, ""}};
  figure.notes.push_back(
      "On the testbed round robin and the other methods keep to four NICs of the thread's NUMA "
      "node, of which half the threads have no slow one: the gain there is smaller than with four "
      "rails.");
  figure.notes.push_back(
      "A thread that is bound to the slow rail keeps it busy, and waits: the sum of such methods "
      "is "
      "high, and their P99 is that of the slow rail.");
  return figure;
}

namespace {

// Rails vanish in turn: so often, one every two seconds, each for a while.
constexpr uint64_t kTimes = 20, kEveryNs = 2000 * kMs, kFirstGoneNs = 1000 * kMs;
constexpr uint64_t kGoneNs = 700 * kMs;

// How well a method got over it, in one run or several.
struct Healing {
  uint64_t times = 0;
  int healed = 0;  // times with 90 % of what is left within 50 ms
  int back = 0;    // times with 90 % of all within 500 ms of the return
  double slowest_ms = 0, slowest_back_ms = 0;
  uint64_t failed = 0;    // requests
  double longest_ms = 0;  // a request
};

void add(Healing& all, const Healing& more) {
  all.times += more.times;
  all.healed += more.healed;
  all.back += more.back;
  all.slowest_ms = std::max(all.slowest_ms, more.slowest_ms);
  all.slowest_back_ms = std::max(all.slowest_back_ms, more.slowest_back_ms);
  all.failed += more.failed;
  all.longest_ms = std::max(all.longest_ms, more.longest_ms);
}

// Returns when rails vanish.
std::vector<uint64_t> plan_vanishing(Trial& trial, const Cluster& cluster, uint64_t seed) {
  fabric::sim::Random random(seed);
  std::vector<uint64_t> gone_ns;
  for (uint64_t i = 0; i < kTimes; ++i) {
    gone_ns.push_back(kFirstGoneNs + i * kEveryNs + (i == 0 ? 0 : random.below(100 * kMs)));
    const int nic = static_cast<int>(i) % cluster.nic_count();
    trial.at_ns(gone_ns.back(), [&trial, nic] { trial.set_speed(nic, 0); });
    trial.at_ns(gone_ns.back() + kGoneNs, [&trial, nic] { trial.set_speed(nic, 1); });
  }
  return gone_ns;
}

Healing heal_once(Trial& trial, const Cluster& cluster, uint64_t seed) {
  const double all_gbps = capacity_gbps(cluster), left_gbps = all_gbps - cluster.nic_gbps.value;
  const std::vector<uint64_t> gone_ns = plan_vanishing(trial, cluster, seed);
  const uint64_t end_ns = kFirstGoneNs + kTimes * kEveryNs;
  trial.add(busy_loop(end_ns));
  trial.network().run_until_ns(end_ns);
  Healing healing;
  for (const uint64_t at_ns : gone_ns) {
    const uint64_t back_ns = at_ns + kGoneNs, next_ns = at_ns + kEveryNs - 100 * kMs;
    const double heal_ms = ms_until(trial.timeline(), at_ns, back_ns, 20 * kMs, 0.9 * left_gbps);
    const double back_ms = ms_until(trial.timeline(), back_ns, next_ns, 50 * kMs, 0.9 * all_gbps);
    add(healing, {1, heal_ms <= 50 ? 1 : 0, back_ms <= 500 ? 1 : 0, heal_ms, back_ms, 0, 0});
  }
  const Measured measured = trial.threads().between(0, end_ns);
  healing.failed = measured.failed;
  healing.longest_ms = measured.percentile_us(1) / 1000;
  return healing;
}

Healing heal_with(Method method, const Cluster& cluster, int seeds, Plot& plot) {
  Healing all;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(seeds); ++seed) {
    Trial trial(cluster, method, seed);
    add(all, heal_once(trial, cluster, seed));
    if (seed == 1)
      plot.series.push_back(bins(method_name(method), trial.timeline(), 10 * kMs, 2500 * kMs));
  }
  return all;
}

std::vector<std::string> healing_row(Method method, const Healing& healing) {
  return {method_name(method),
          fmt::format("{} of {}", healing.healed, healing.times),
          fmt::format("{:.0f}", healing.slowest_ms),
          fmt::format("{} of {}", healing.back, healing.times),
          fmt::format("{:.0f}", healing.slowest_back_ms),
          fmt::format("{}", healing.failed),
          fmt::format("{:.0f}", healing.longest_ms)};
}

std::vector<Verdict> healing_verdicts(const Healing& healing) {
  const auto times = static_cast<double>(healing.times);
  return {
      {"A5", "90 % of what is left within 50 ms: parts of all times", healing.healed / times, 0.95,
       true, ""},
      {"A5", "back at 90 % within 500 ms: parts of all times", healing.back / times, 1, true, ""},
      {"A5", "requests that failed", static_cast<double>(healing.failed), 0, false, ""}};
}

// Once, with many rails.
Verdict testbed_verdict(const Cluster& testbed) {
  constexpr uint64_t kGoneAtNs = 20 * kMs, kEndNs = 150 * kMs;
  Trial trial(testbed, Method::kBraid, 1);
  trial.at_ns(kGoneAtNs, [&trial] { trial.set_speed(0, 0); });
  trial.add(busy_loop(kEndNs));
  trial.network().run_until_ns(kEndNs);
  const double left_gbps = capacity_gbps(testbed) - testbed.nic_gbps.value;
  return {"A10",
          "heal on the testbed: 90 % of what is left after",
          ms_until(trial.timeline(), kGoneAtNs, kEndNs, 5 * kMs, 0.9 * left_gbps),
          50,
          false,
          "ms"};
}

}  // namespace

Figure heal(const Clusters& clusters, int seeds) {
  Figure figure{"heal", "A rail vanishes silently, and comes back", "", {}, {}, {}, {}};
  figure.paper = "self-healing below 50 ms (the abstract of a later version).";
  Plot plot{"heal-timeline",
            "A rail vanishes at 1,000 ms and comes back at 1,700 ms, 10 ms bins",
            "ms",
            "GB/s",
            false,
            false,
            {},
            {{1000, "gone"}, {1700, "back"}}};
  Table table{
      "Of 20 times, limited rails, 16 threads of 1 MB",
      {"method", "90 % of what is left within 50 ms", "slowest, ms",
       "90 % of all within 500 ms of the return", "slowest, ms", "failed", "longest request, ms"},
      {}};
  for (const Method method : all_methods()) {
    const Healing healing = heal_with(method, clusters.limited, seeds, plot);
    table.rows.push_back(healing_row(method, healing));
    if (method == Method::kBraid) figure.verdicts = healing_verdicts(healing);
  }
  figure.tables = {table};
  figure.plots = {plot};
  figure.notes = {
      "A time is the one from which on every 20 ms until the return (50 ms after it) carry 90 %. "
      "0.95 is 19 of 20.",
      "With a fixed rail the other threads go on, and those of the rail that is gone stand still: "
      "see the longest request."};
  figure.verdicts.push_back(testbed_verdict(clusters.testbed));
  return figure;
}

Figure flap(const Clusters& clusters, int seeds) {
  Figure figure{
      "flap", "A rail that is gone for 300 ms and back for 300 ms, for 30 s", "", {}, {}, {}, {}};
  constexpr uint64_t kFirstNs = 1000 * kMs, kEndNs = 31'000 * kMs, kBinNs = 100 * kMs;
  const Cluster& cluster = clusters.limited;
  const double others = capacity_gbps(cluster) - cluster.nic_gbps.value;
  Table table{"Of the capacity of the other three, limited rails, bins of 100 ms",
              {"method", "lowest bin", "mean"},
              {}};
  Plot plot{"flap-timeline",
            "A rail flaps every 300 ms, 100 ms bins",
            "ms",
            "GB/s",
            false,
            false,
            {},
            {}};
  for (const Method method : all_methods()) {
    double lowest = 1e9, mean = 0;
    for (int seed = 1; seed <= seeds; ++seed) {
      Trial trial(cluster, method, static_cast<uint64_t>(seed));
      int flaps = 0;
      for (uint64_t at_ns = kFirstNs; at_ns < kEndNs; at_ns += 300 * kMs, ++flaps) {
        const double part = flaps % 2 == 0 ? 0 : 1;
        trial.at_ns(at_ns, [&trial, part] { trial.set_speed(0, part); });
      }
      trial.add(busy_loop(kEndNs));
      trial.network().run_until_ns(kEndNs);
      for (uint64_t at_ns = kFirstNs; at_ns < kEndNs; at_ns += kBinNs)
        lowest = std::min(lowest, trial.timeline().gbps(at_ns, at_ns + kBinNs) / others);
      mean += trial.timeline().gbps(kFirstNs, kEndNs) / others / seeds;
      if (seed == 1)
        plot.series.push_back(bins(method_name(method), trial.timeline(), kBinNs, 8000 * kMs));
    }
    table.rows.push_back(
        {method_name(method), fmt::format("{:.3f}", lowest), fmt::format("{:.3f}", mean)});
    if (method == Method::kBraid)
      figure.verdicts.push_back(
          {"A6", "the lowest bin of 100 ms, of the other three rails", lowest, 0.85, true, ""});
  }
  figure.tables = {table};
  figure.plots = {plot};
  return figure;
}

}  // namespace braid::transfer::sim
