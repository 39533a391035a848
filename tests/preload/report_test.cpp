// The statistics' three formats and the log's line.
#include "preload/report.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "preload/descriptor.h"
#include "preload/log.h"
#include "preload/process_path.h"

namespace braid::preload {
namespace {

using multipath::Direction;
using multipath::Mover;
using multipath::Outcome;
using multipath::PathCount;
using multipath::Verdict;

void append(void* context, const char* text, size_t size_bytes) {
  static_cast<std::string*>(context)->append(text, size_bytes);
}

std::string report(StatsFormat format, const Statistics& statistics,
                   const std::vector<PathCount>& paths, std::string_view name = "serve",
                   const std::vector<multipath::RelayCount>& relays = {}) {
  std::string text;
  char buffer[64];  // small, so that every text is written in parts
  {
    TextWriter out(buffer, append, &text);
    const auto counts = std::make_unique<multipath::PathCounts>();
    for (const PathCount& path : paths) counts->add(path);
    write_report(format, {42, name}, statistics, *counts, relays, out);
  }
  return text;
}

Outcome carried() {
  Outcome outcome = Verdict::kAccelerated;
  outcome.mover = Mover::kKernel;
  outcome.via = 0b1101;
  outcome.slice_bytes = 65536;
  return outcome;
}

class Report : public ::testing::Test {
 protected:
  Report() {
    statistics_.add(k_cuMemcpyHtoD_v2, carried(), 100, 20);
    statistics_.add(k_cuMemcpyHtoD_v2, carried(), 1, 30);
    statistics_.add(k_cuMemcpyHtoD_v2, Verdict::kPageable, 7, 5);
    statistics_.add(k_cuMemcpyAsync, Verdict::kBelowThreshold, 0, 4);
  }
  Statistics statistics_;
  const std::vector<PathCount> paths_{{0, 0, Direction::kHostToDevice, Mover::kKernel, 3, 60},
                                      {0, 5, Direction::kDeviceToHost, Mover::kKernel, 2, 41}};
};

std::string first_line(const Statistics& statistics) {
  const std::string text = report(StatsFormat::kText, statistics, {});
  return text.substr(0, text.find('\n'));
}

TEST_F(Report, TheFirstLineSaysWhatHappenedAndWhatToTry) {
  EXPECT_EQ(
      first_line(statistics_),
      "braid: process 42 (serve): 2 of 4 copies of 108 bytes were carried by braid (101 bytes); "
      "1 copy of 7 bytes were of pageable memory, and were not staged: pin it, or see "
      "--pageable");
  Statistics early;
  for (int copy = 0; copy < 6; ++copy)
    early.add(k_cuMemcpyHtoDAsync_v2, Verdict::kNotReady, 64'000'000, 5);
  EXPECT_EQ(
      first_line(early),
      "braid: process 42 (serve): 0 of 6 copies of 384.0 MB were carried by braid; 6 copies of "
      "384.0 MB came before the relays were open: `--opening wait` carries them");
  early.add(k_cuMemcpyHtoDAsync_v2, Verdict::kBelowThreshold, 400'000'000, 5);
  EXPECT_NE(first_line(early).find("--opening wait"), std::string::npos) << "that can be helped";
  Statistics none;
  EXPECT_EQ(report(StatsFormat::kText, none, {}),
            "braid: process 42 (serve): no copies between host memory and a GPU. What its children "
            "copy, they report\n");
}

TEST_F(Report, JsonHasEveryCountCostAndPath) {
  const std::string text = report(StatsFormat::kJson, statistics_, paths_);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  EXPECT_EQ(nlohmann::json::parse(text), nlohmann::json::parse(R"({"braid": {"pid": 42,
    "entry_points": {
      "cuMemcpyHtoD_v2": {"accelerated": {"calls": 2, "bytes": 101},
                          "pageable": {"calls": 1, "bytes": 7}},
      "cuMemcpyAsync": {"below_threshold": {"calls": 1, "bytes": 0}}},
    "movers": {"native": {"calls": 2, "bytes": 7}, "kernel": {"calls": 2, "bytes": 101}},
    "cost_ns": {
      "accelerated": {"calls": 2, "p50": 20, "p90": 30, "p99": 30, "max": 30},
      "passed_through": {"calls": 2, "p50": 4, "p90": 5, "p99": 5, "max": 5}},
    "paths": [
      {"target": 0, "via": 0, "direction": "h2d", "mover": "kernel", "slices": 3, "bytes": 60},
      {"target": 0, "via": 5, "direction": "d2h", "mover": "kernel", "slices": 2, "bytes": 41}],
    "relays": [], "problems": []}})"))
      << text;
}

// A verdict's movers are one count, and the movers' counts are over all entry points.
TEST_F(Report, JsonAddsUpMovers) {
  Outcome other = carried();
  other.mover = Mover::kCopyEngine;
  statistics_.add(k_cuMemcpyHtoD_v2, other, 1000, 20);
  Outcome staged = Verdict::kStaged;
  staged.mover = Mover::kCopyEngine;
  statistics_.add(k_cuMemcpyAsync, staged, 10000, 20);
  const auto all =
      nlohmann::json::parse(report(StatsFormat::kJson, statistics_, paths_)).at("braid");
  EXPECT_EQ(all.at("entry_points").at("cuMemcpyHtoD_v2").at("accelerated"),
            (nlohmann::json{{"calls", 3}, {"bytes", 1101}}));
  EXPECT_EQ(all.at("movers").at("copy_engine"), (nlohmann::json{{"calls", 2}, {"bytes", 11000}}));
  EXPECT_EQ(all.at("movers").at("native"), (nlohmann::json{{"calls", 2}, {"bytes", 7}}));
}

TEST_F(Report, JsonIsWholeWhenNothingWasCounted) {
  const Statistics none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(nlohmann::json::parse(report(StatsFormat::kJson, none, {})),
            nlohmann::json::parse(R"({"braid": {"pid": 42, "entry_points": {}, "movers": {},
                                     "cost_ns": {}, "paths": [],
                                     "relays": [], "problems": []}})"));
  EXPECT_EQ(report(StatsFormat::kNone, none, {}), "");
}

const std::vector<multipath::RelayCount> kRelays = {
    {1, multipath::RelayState::kOpen, 0, 0, 0},
    {2, multipath::RelayState::kResting, 3, 0, 2},
    {5, multipath::RelayState::kWithoutBuffers, 0, 4, 0}};

TEST_F(Report, JsonHasEveryRelay) {
  const auto all =
      nlohmann::json::parse(report(StatsFormat::kJson, statistics_, paths_, "serve", kRelays));
  EXPECT_EQ(all.at("braid").at("relays"), nlohmann::json::parse(R"([
      {"gpu": 1, "state": "open", "refusals": 0, "shared": 0, "congested": 0},
      {"gpu": 2, "state": "resting", "refusals": 3, "shared": 0, "congested": 2},
      {"gpu": 5, "state": "without_buffers", "refusals": 0, "shared": 4, "congested": 0}])"));
}

TEST_F(Report, TextHasTheRelaysOfWhichThereIsSomethingToSay) {
  const std::string text = report(StatsFormat::kText, statistics_, paths_, "serve", kRelays);
  EXPECT_EQ(text.find("relay GPU 1"), std::string::npos) << text;
  EXPECT_NE(text.find("relay GPU 2 is resting: 3 times refused"), std::string::npos) << text;
  EXPECT_NE(text.find("relay GPU 5 is without_buffers"), std::string::npos) << text;
}

TEST_F(Report, TextSharesAreOfOneTargetAndDirection) {
  const auto path = [](int target, int via, uint64_t bytes) {
    return PathCount{target, via, Direction::kHostToDevice, Mover::kKernel, 1, bytes};
  };
  const std::string text =
      report(StatsFormat::kText, statistics_, {path(0, 0, 100), path(0, 1, 300), path(2, 1, 300)});
  for (const char* part : {" 25.0%", " 75.0%", "100.0%", "GPU 0 through GPU 1", "GPU 0 direct",
                           "kernel", "passed_through"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
}

// The exposition format: HELP and TYPE once before the lines of their family, no line twice.
TEST_F(Report, PrometheusIsWellFormed) {
  std::istringstream lines(report(StatsFormat::kPrometheus, statistics_, paths_, "serve", kRelays));
  std::set<std::string> families;
  std::set<std::string> series;
  std::string family;
  std::string type;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, keyword, name;
    if (line.starts_with("#")) {
      words >> hash >> keyword >> name;
      if (keyword == "HELP") {
        EXPECT_TRUE(families.insert(name).second) << line;
        family = name;
      } else {
        EXPECT_EQ(keyword, "TYPE");
        EXPECT_EQ(name, family);
        words >> type;
      }
      continue;
    }
    EXPECT_TRUE(line.starts_with(family)) << line;
    if (type == "counter") {
      EXPECT_TRUE(family.ends_with("_total")) << family;
    }
    const size_t end = line.rfind(' ');
    EXPECT_TRUE(series.insert(line.substr(0, end)).second) << line;
    size_t used = 0;
    const std::string value = line.substr(end + 1);
    std::stod(value, &used);
    EXPECT_EQ(used, value.size()) << line;
  }
  for (
      const char* line :
      {R"(braid_copies_total{pid="42",entry_point="cuMemcpyHtoD_v2",outcome="accelerated",mover="kernel"})",
       R"(braid_copy_bytes_total{pid="42",entry_point="cuMemcpyHtoD_v2",outcome="pageable",mover="native"})",
       R"(braid_path_bytes_total{pid="42",target="0",via="5",direction="d2h",mover="kernel"})",
       R"(braid_relay_refusals_total{pid="42",gpu="2"})", R"(braid_relay_open{pid="42",gpu="5"})",
       R"(braid_submit_cost_seconds{pid="42",outcome="accelerated",quantile="0.99"})",
       R"(braid_submit_cost_seconds_count{pid="42",outcome="passed_through"})"})
    EXPECT_TRUE(series.contains(line)) << line;
}

TEST_F(Report, PrometheusEscapesWhatAProgramMayBeCalled) {
  const std::string text = report(StatsFormat::kPrometheus, statistics_, paths_, "a\"b\\c\nd");
  EXPECT_NE(text.find(R"(program="a\"b\\c\nd"} 1)"), std::string::npos) << text;
}

TEST_F(Report, PrometheusCountsSeconds) {
  Statistics slow;
  slow.add(k_cuMemcpy, carried(), 1, 1'500'000'007);
  const std::string text = report(StatsFormat::kPrometheus, slow, {});
  EXPECT_NE(text.find("_sum{pid=\"42\",outcome=\"accelerated\"} 1.500000007\n"), std::string::npos)
      << text;
}

TEST_F(Report, ClearedCountsAreGone) {
  EXPECT_FALSE(statistics_.empty());
  statistics_.clear();
  EXPECT_TRUE(statistics_.empty());
  EXPECT_EQ(statistics_.cost_ns(CostClass::kAccelerated).count(), 0u);
}

TEST(PathCounts, TheSamePathIsAddedUpAndOthersAreNot) {
  multipath::PathCounts counts;
  counts.add({0, 1, Direction::kHostToDevice, Mover::kKernel, 1, 10});
  counts.add({0, 1, Direction::kHostToDevice, Mover::kKernel, 2, 20});
  counts.add({0, 1, Direction::kDeviceToHost, Mover::kKernel, 4, 40});
  counts.add({1, 1, Direction::kHostToDevice, Mover::kKernel, 8, 80});
  ASSERT_EQ(counts.all().size(), 3u);
  EXPECT_EQ(counts.all()[0].slices, 3u);
  EXPECT_EQ(counts.all()[0].bytes, 30u);
}

std::string log_line(const CopyRecord& record) {
  std::string line;
  char buffer[32];
  {
    TextWriter out(buffer, append, &line);
    write_log_line(42, record, out);
  }
  return line;
}

TEST(LogLine, SaysHowACarriedCopyTravelsAndWhy) {
  const multipath::Batch batch{Direction::kHostToDevice, multipath::Segment{}, CU_STREAM_LEGACY};
  Outcome outcome = carried();
  outcome.forecast = {{156.5, 88.2, 0}, 4, multipath::Reason::kFaster};
  EXPECT_EQ(
      log_line({k_cuMemcpyHtoD_v2, 8 << 20, &batch, 3, outcome, 1234}),
      "braid: copy pid=42 entry_point=cuMemcpyHtoD_v2 bytes=8388608 direction=h2d gpu=3 "
      "stream=legacy priority=bulk outcome=accelerated mover=kernel via=0,2,3 slice_bytes=65536 "
      "why=faster expected_us=native:156,kernel:88 available=4 cost_ns=1234\n");
}

TEST(LogLine, SaysWhatCarriedTheChunksOfAStagedCopy) {
  const multipath::Batch batch{Direction::kHostToDevice, multipath::Segment{}, CU_STREAM_LEGACY};
  Outcome staged = Verdict::kStaged;
  staged.mover = Mover::kCopyEngine;
  staged.via = 0b11;
  EXPECT_EQ(log_line({k_cuMemcpyHtoD_v2, 8 << 20, &batch, 0, staged, 5}),
            "braid: copy pid=42 entry_point=cuMemcpyHtoD_v2 bytes=8388608 direction=h2d gpu=0 "
            "stream=legacy priority=bulk outcome=staged mover=copy_engine via=0,1 slice_bytes=0 "
            "cost_ns=5\n");
}

TEST(LogLine, SaysWhyACopyStaysNative) {
  const multipath::Batch batch{Direction::kDeviceToHost, multipath::Segment{},
                               reinterpret_cast<CUstream>(0x1f0)};
  EXPECT_EQ(log_line({k_cuMemcpyAsync, 8 << 20, &batch, 0, Verdict::kSaturated, 9}),
            "braid: copy pid=42 entry_point=cuMemcpyAsync bytes=8388608 direction=d2h gpu=0 "
            "stream=0x1f0 priority=bulk outcome=saturated mover=native cost_ns=9\n");
  Outcome cold = Verdict::kCold;
  cold.forecast = {{150, 130, 160}, 2, multipath::Reason::kFaster};
  EXPECT_EQ(log_line({k_cuMemcpyAsync, 8 << 20, &batch, 0, cold, 9}),
            "braid: copy pid=42 entry_point=cuMemcpyAsync bytes=8388608 direction=d2h gpu=0 "
            "stream=0x1f0 priority=bulk outcome=cold mover=native "
            "expected_us=native:150,kernel:130,copy_engine:160 available=2 cost_ns=9\n");
  EXPECT_EQ(log_line({k_cuMemcpy, 8 << 20, nullptr, -1, Verdict::kNotLinear, 9}),
            "braid: copy pid=42 entry_point=cuMemcpy bytes=8388608 outcome=not_linear "
            "mover=native cost_ns=9\n");
}

TEST(Descriptor, OneThatRefusesIsMarked) {
  Descriptor full{open("/dev/full", O_WRONLY)};
  if (full.number < 0) GTEST_SKIP() << "no /dev/full here";
  char buffer[8];
  { TextWriter(buffer, write_to_descriptor, &full) << "text"; }
  close(full.number);
  EXPECT_TRUE(full.failed);
}

TEST(ProcessPath, TheProcessIsPutIn) {
  EXPECT_STREQ(ProcessPath("/a/%p/b-%p.prom", 42).c_str(), "/a/42/b-42.prom");
  EXPECT_STREQ(ProcessPath("/a%.new", 42).c_str(), "/a%.new");
  EXPECT_STREQ(ProcessPath(std::string(PATH_MAX, 'x'), 42).c_str(), "") << "too long";
  EXPECT_STREQ(ProcessPath(std::string(PATH_MAX - 2, 'x') + "%p", 42).c_str(), "") << "too long";
}

}  // namespace
}  // namespace braid::preload
