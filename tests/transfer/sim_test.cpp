// The simulator: what is simulated is what its model says, equal seeds give equal reports, and the
// scheduler does there what it promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "transfer/sim/figures.h"

namespace braid::transfer::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;

Cluster cluster(const std::string& name) {
  const auto loaded = load_cluster(BRAID_PROFILES "/clusters/" + name + ".json");
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  return loaded.value();
}
Clusters clusters() { return {cluster("h800x8-2node"), cluster("limited-rails")}; }

TEST(Cluster, EveryFigureHasASource) {
  for (const Cluster& one : {clusters().testbed, clusters().limited})
    for (const ClusterRow& row : cluster_rows())
      EXPECT_GT((one.*row.figure).source.size(), 15u) << one.name << " " << row.name;
}

/// So they need no distances between nodes: a node has one other, however far it is
/// (tests/transfer/places_test.cpp).
TEST(Cluster, NoNodeHasTwoOthers) {
  for (const Cluster& one : {clusters().testbed, clusters().limited})
    EXPECT_LE(one.numa_nodes, 2) << one.name;
}

TEST(Cluster, WhatIsWrongIsNamed) {
  const std::string path = testing::TempDir() + "/broken_cluster.json";
  std::ifstream file(BRAID_PROFILES "/clusters/limited-rails.json");
  std::stringstream text;
  text << file.rdbuf();
  std::string broken = text.str();
  broken.replace(broken.find("\"value\": 0.05"), 13, "\"value\": \"x\"");
  std::ofstream(path) << broken;
  const auto loaded = load_cluster(path);
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.status().message().find("nic_gbps"), std::string::npos)
      << loaded.status().message();
  EXPECT_FALSE(load_cluster(path + ".none").ok());
}

/// Files of clusters that no run could be made of: each is refused by its key, with what is
/// allowed.
TEST(Cluster, FiguresHaveRanges) {
  std::ifstream file(BRAID_PROFILES "/clusters/h800x8-2node.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto refusal = [&](const std::string& key, const std::string& value) {
    std::string broken = text.str();
    const std::string begin = "\"" + key + "\": {\"value\": ";
    const size_t at = broken.find(begin) + begin.size();
    broken.replace(at, broken.find(',', at) - at, value);
    const std::string path = testing::TempDir() + "/cluster_ranges.json";
    std::ofstream(path) << broken;
    return load_cluster(path).status().message();
  };
  EXPECT_EQ(refusal("workers", "4"), "");
  for (const char* workers : {"0", "1e18", "2.5"})
    EXPECT_NE(refusal("workers", workers).find("workers.value: expected a whole number from 1 to"),
              std::string::npos)
        << workers << ": " << refusal("workers", workers);
  EXPECT_NE(refusal("nics", "7.5").find("nics.value"), std::string::npos);
  for (const char* gbps : {"0", "1e-300", "1e300"})
    EXPECT_NE(refusal("nic_gbps", gbps).find("nic_gbps.value: expected a number from 0.001 to"),
              std::string::npos)
        << gbps << ": " << refusal("nic_gbps", gbps);
  EXPECT_NE(refusal("latency_us", "1e300").find("latency_us.value"), std::string::npos);
}

/// When the last of these writes over one path has completed, in us.
double carry(Network& network, const std::vector<std::pair<Nic, uint64_t>>& writes, int node) {
  const Cluster& one = network.cluster();
  uint64_t last_ns = 0;
  for (const auto& [nic, size_bytes] : writes) {
    const int path = network.open_path(nic, {1, nic.index});
    network.post(path, {0, one.host_place(node)},
                 {1, one.host_place(one.nic_place(nic.index).numa_node)}, Direction::kWrite,
                 size_bytes, [&] { last_ns = network.now_ns(); });
  }
  network.run_until_ns(1000 * kMs);
  return static_cast<double>(last_ns) / 1000;
}

TEST(Network, NicsAndTheSocketLinkAreTheLimits) {
  const Cluster one = clusters().testbed;
  constexpr uint64_t kBytes = 100 << 20;
  const double alone_us = kBytes / 24.5e3;
  Network near(one, 1);
  EXPECT_NEAR(carry(near, {{{0, 0}, kBytes}, {{0, 1}, kBytes}}, 0), alone_us, 5);
  Network shared(one, 1);
  EXPECT_NEAR(carry(shared, {{{0, 0}, kBytes}, {{0, 0}, kBytes}}, 0), 2 * alone_us, 5);
  Network across(one, 1);  // four NICs of the other node: 98 GB/s through 80
  EXPECT_NEAR(
      carry(across, {{{0, 4}, kBytes}, {{0, 5}, kBytes}, {{0, 6}, kBytes}, {{0, 7}, kBytes}}, 0),
      4 * kBytes / 80e3, 5);
}

TEST(Network, AFencedPathLandsAndCompletesNothing) {
  Network network(clusters().testbed, 1);
  const Memory ours{0, network.cluster().host_place(0)}, theirs{1, network.cluster().host_place(0)};
  const int path = network.open_path({0, 0}, {1, 0});
  int done = 0;
  for (int i = 0; i < 3; ++i)
    network.post(path, ours, theirs, Direction::kWrite, 1 << 20, [&] { ++done; });
  network.run_until_ns(60'000);  // one of 43 us has completed
  network.fence(path);
  network.run_until_ns(kMs);
  EXPECT_EQ(done, 1);
  network.post(path, ours, theirs, Direction::kWrite, 1 << 20, [&] { ++done; });
  network.run_until_ns(2 * kMs);
  EXPECT_EQ(done, 2) << "what is posted later goes";
}

TEST(Oracle, IsTheCapacityThatDemandsCanReach) {
  const Cluster one = clusters().testbed;
  Network network(one, 1);
  const Demand first{{0, one.host_place(0)}, {1, one.host_place(0)}};
  const Demand second{{0, one.host_place(1)}, {1, one.host_place(1)}};
  EXPECT_NEAR(optimum_gbps(network, {first})[0], 98 + 80, 0.1)
      << "its own NICs, and the socket link";
  const auto both = optimum_gbps(network, {first, second});
  EXPECT_NEAR(both[0] + both[1], 196, 0.1);
  network.set_speed({0, 0}, 0.5);
  EXPECT_NEAR(optimum_gbps(network, {first, second})[0] + optimum_gbps(network, {first, second})[1],
              196 - 12.25, 0.1);
}

/// What a loop reaches on the testbed, in GB/s.
double reached(Method method, uint64_t size_bytes, int threads, double slow_part) {
  const Cluster one = clusters().testbed;
  Trial trial(one, method, 1);
  trial.set_speed(0, slow_part);
  Loop loop;
  loop.threads = threads;
  loop.sizes_bytes = {size_bytes};
  loop.end_ns = 10 * kMs;
  trial.add(loop);
  trial.network().run_until_ns(20 * kMs);
  return trial.threads().between(kMs, 10 * kMs).gbps;
}

TEST(Scheduler, UsesAllRailsAndLeavesASlowOneToWhatItCanDo) {
  EXPECT_GT(reached(Method::kBraid, 16 << 20, 2, 1), 0.93 * 196);
  EXPECT_GT(reached(Method::kBraid, 1 << 20, 16, 0.1), 0.97 * (196 - 0.9 * 24.5));
  EXPECT_LT(reached(Method::kRoundRobin, 1 << 20, 16, 0.1), 120) << "as it keeps to its turns";
}

TEST(Scheduler, UrgentSlicesDoNotWaitForBulk) {
  const Figure figure = urgent(clusters(), 1);
  ASSERT_EQ(figure.verdicts.size(), 4u);
  for (const Verdict& verdict : figure.verdicts) EXPECT_TRUE(verdict.is_met()) << to_text(verdict);
}

TEST(Figures, AFlappingRailHoldsNobodyUp) {
  for (const Verdict& verdict : flap(clusters(), 1).verdicts)
    EXPECT_TRUE(verdict.is_met()) << to_text(verdict);
}

TEST(Figures, EqualSeedsGiveEqualReportsAndOthersDoNot) {
  const auto report = [](int seeds) {
    const std::vector<Figure> figures = {tiers_figure(clusters(), seeds),
                                         weights(clusters(), seeds)};
    return to_markdown(figures, {clusters().testbed}, seeds) + to_json(figures, seeds);
  };
  EXPECT_EQ(report(1), report(1));
  const auto mooncake = [](uint64_t seed) {
    Trial trial(clusters().testbed, Method::kMooncake, seed);
    Loop loop;
    loop.threads = 4;
    loop.sizes_bytes = {1 << 20};
    loop.end_ns = kMs;
    trial.add(loop);
    trial.network().run_until_ns(2 * kMs);
    return trial.threads().between(0, kMs).took_us;
  };
  EXPECT_EQ(mooncake(1), mooncake(1));
  EXPECT_NE(mooncake(1), mooncake(2));
}

// What processes get together is what the NICs carry, and no more.
TEST(Figures, SharesAreOfTheCapacity) {
  for (const Verdict& verdict : share(clusters(), 1).verdicts) {
    EXPECT_TRUE(verdict.is_met()) << to_text(verdict);
    const bool is_sum = verdict.what.find("sum, of all NICs") != std::string::npos;
    EXPECT_TRUE(!is_sum || verdict.figure < 1.0005) << to_text(verdict);
  }
}

TEST(Figures, SayWhereBraidLoses) {
  const Figure figure = tebench(clusters(), 1);
  const auto tells = [](const std::string& note) {
    return note.find("P99 is longer than that of the best other method by up to") !=
           std::string::npos;
  };
  EXPECT_TRUE(std::any_of(figure.notes.begin(), figure.notes.end(), tells));
}

TEST(Report, IsWrittenWithAPlotForEachFigure) {
  Figure figure{"one", "One figure", "what the paper shows", {"a note"}, {}, {}, {}};
  figure.tables.push_back({"A table", {"x", "y"}, {{"1", "2"}}});
  figure.plots.push_back(
      {"one-plot", "A plot", "x", "y", true, false, {{"line", {{1, 2}, {4, 8}}}}, {{2, "here"}}});
  figure.verdicts.push_back({"A0", "something", 0.5, 0.9, true, ""});
  const std::string folder = testing::TempDir() + "/transfer_report";
  ASSERT_TRUE(write_report(folder, {figure}, {clusters().limited}, 1).ok());
  for (const char* name : {"report.md", "report.json", "one-plot.svg"})
    EXPECT_GT(std::filesystem::file_size(folder + "/" + name), 200u) << name;
  std::ifstream file(folder + "/report.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find("**not met**"), std::string::npos) << "where braid loses, it says so";
  EXPECT_NE(text.str().find("row A3: 400 Mbit/s each"), std::string::npos) << "inputs have sources";
}

}  // namespace
}  // namespace braid::transfer::sim
