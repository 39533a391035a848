// The statistics in their three forms, and the policy of recent bandwidth.
#include "fabric/library/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "fabric/policy/recent_rate.h"

namespace braid::fabric {
namespace {

using Json = nlohmann::json;

EngineReport sample() {
  EngineReport report;
  report.engine = 0xab;
  report.counts.malformed = 3;
  report.strays = 2;
  report.quarantined_bytes = 4096;
  report.rails = {{"tcp;ofi_rxm", false, 17, 4}, {"tcp;ofi_rxm", true, 0}};
  report.addresses = {"10.0.0.1", "10.0.1.1"};
  report.nics = {"eth0", ""};
  report.routes = {{5, 0xcd, 0, RailState::kUp, 10, 5'000'000, 0, 512, 1'234'567'890},
                   {5, 0xcd, 1, RailState::kDown, 1, 100, 7, 0, 0}};
  report.peers = {{5, 0xcd, 4096}};
  return report;
}

TEST(FabricReport, JsonIsOneLineWithEveryNumber) {
  const std::string text = write_report(StatsFormat::kJson, sample());
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const Json json = Json::parse(text)["braid_fabric"];
  EXPECT_EQ(json["engine"], "00000000000000ab");
  EXPECT_EQ(json["malformed"], 3);
  EXPECT_EQ(json["strays"], 2);
  EXPECT_EQ(json["quarantined_bytes"], 4096);
  EXPECT_EQ(json["rails"][0]["nic"], "eth0");
  EXPECT_EQ(json["rails"][0]["immediates"], 17);
  EXPECT_EQ(json["rails"][0]["endpoints"], 4);
  EXPECT_EQ(json["rails"][1]["nic"], nullptr);
  EXPECT_EQ(json["rails"][1]["is_retired"], true);
  EXPECT_EQ(json["routes"][0]["bytes"], 5'000'000);
  EXPECT_EQ(json["routes"][0]["bytes_per_s"], 1'234'567'890);
  EXPECT_EQ(json["routes"][1]["state"], "down");
  EXPECT_EQ(json["routes"][1]["failures"], 7);
  EXPECT_EQ(json["peers"][0]["quarantined_bytes"], 4096);
  EXPECT_EQ(json["unshared_allocations"], 0);
  EXPECT_EQ(json["unshared_why"], nullptr);
}

TEST(FabricReport, TextHasARowForEachRailAndRoute) {
  EXPECT_EQ(
      write_report(StatsFormat::kText, sample()),
      R"(braid fabric: engine 00000000000000ab, 2 rails, 1 peers; malformed 3; strays 2; quarantined_bytes 4096
  rail  address             NIC      provider        endpoints  immediates
  0     10.0.0.1            eth0     tcp;ofi_rxm             4          17
  1     10.0.1.1            -        tcp;ofi_rxm             1           0  retired
  to peer           over    state        writes           bytes  failures      GB/s
  00000000000000cd  rail 0  up               10         5000000         0     1.234
  00000000000000cd  rail 1  down              1             100         7     0.000
  00000000000000cd: 4096 bytes are quarantined
)");
}

TEST(FabricReport, PrometheusNamesEachMetricOnceBeforeItsSeries) {
  const std::string text = write_report(StatsFormat::kPrometheus, sample());
  std::istringstream lines(text);
  std::set<std::string> metrics;
  std::string metric;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) {
      metric = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(metrics.insert(metric).second) << line;
    } else if (!line.starts_with("# TYPE ")) {
      EXPECT_TRUE(line.starts_with(metric + "{engine=\"00000000000000ab\"")) << line;
    }
  }
  const std::string route = "{engine=\"00000000000000ab\",peer=\"00000000000000cd\",rail=\"1\"";
  EXPECT_NE(text.find("braid_fabric_failures_total" + route + "} 7\n"), std::string::npos);
  EXPECT_NE(text.find("braid_fabric_rail_state" + route + ",state=\"down\"} 1\n"),
            std::string::npos);
  EXPECT_NE(text.find("braid_fabric_rail_state" + route + ",state=\"up\"} 0\n"), std::string::npos);
  EXPECT_NE(text.find("rail=\"0\",address=\"10.0.0.1\"} 17\n"), std::string::npos);
  EXPECT_NE(text.find("braid_fabric_endpoints{engine=\"00000000000000ab\",rail=\"0\",address="
                      "\"10.0.0.1\"} 4\n"),
            std::string::npos);
}

TEST(FabricReport, WithoutAFormThereIsNone) {
  EXPECT_EQ(write_report(StatsFormat::kNone, sample()), "");
}

TEST(RecentRate, IsTheBandwidthOfTheLastHalfSecond) {
  constexpr uint64_t kMs = 1'000'000;
  RecentRate rate;
  uint64_t now_ns = 12'345 * kMs;
  for (int ms = 0; ms < 2000; ++ms) rate.add(1000, now_ns += kMs);
  EXPECT_NEAR(static_cast<double>(rate.bytes_per_s(now_ns)), 1e6, 1e4);
  const uint64_t fading = rate.bytes_per_s(now_ns + 250 * kMs);
  EXPECT_GT(fading, 0u);
  EXPECT_LT(fading, 900'000u);
  EXPECT_EQ(rate.bytes_per_s(now_ns + 1000 * kMs), 0u);
}

}  // namespace
}  // namespace braid::fabric
