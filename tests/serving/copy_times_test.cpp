// What is read of measured copies, and what the figures of copies say of them.
#include "serving/cost/copy_times.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/median.h"
#include "serving/hardware.h"
#include "tools/serving/designer.h"
#include "tools/serving/report.h"

namespace braid::tools::serving_figures {
namespace {

constexpr const char* kTable1 = R"({"what":"table_1","verified":true,)"
                                R"("naive":{"down_gbps":[1],"up_gbps":[2],"both_s":[0.03]},)"
                                R"("duplex":{"down_gbps":[5],"up_gbps":[5],"both_s":[0.01]}})";

std::string segment(const char* moves, int bytes, int count, const char* gbps,
                    const char* more = "") {
  return std::string(R"({"what":"segment","verified":true,"moves":")") + moves +
         R"(","segment_bytes":)" + std::to_string(bytes) + R"(,"segments":)" +
         std::to_string(count) + R"(,"one_by_one_gbps":)" + gbps +
         R"(,"native_gbps":[100],"braid_gbps":[200])" + more + "}";
}

Result<serving::CopyTimes> read(const std::string& text) {
  const auto path = std::filesystem::path(::testing::TempDir()) /
                    ("copies_" + std::to_string(getpid()) + ".jsonl");
  std::ofstream(path) << text;
  auto times = serving::read_copy_times(path.string());
  std::filesystem::remove(path);
  return times;
}

std::string good() {
  return std::string(R"({"what":"server","gpus":2})") + "\n" + kTable1 + "\n" +
         segment("both", 65536, 512, "[3, 1, 2]") + "\n" + segment("both", 65536, 2048, "[2]") +
         "\n" + segment("both", 8388608, 64, "[95]") + "\n" +
         segment("down", 65536, 512, "[9]", R"(,"call_us":[4],"transfer_us":[3])") + "\n";
}

Figure figure_of(const char* name, const serving::CopyTimes& copies) {
  Setting setting;
  setting.copies = copies;
  Laboratory laboratory(1, 1);
  return make_figure(name, setting, laboratory).value();
}

std::string report_of_figure(const char* name) {
  Laboratory laboratory(1, 1);
  return report_of(figure_of(name, read(good()).value()), laboratory);
}

void expect_says(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << words << " is not in:\n" << text;
}

TEST(CopyTimes, AreMediansOfTheTurnsOfAMeasurement) {
  const auto times = read(good());
  ASSERT_TRUE(times.ok()) << times.status().message();
  ASSERT_EQ(times.value().segments.size(), 4u);
  EXPECT_EQ(times.value().segments[0].one_by_one_gbps, 2);
  EXPECT_EQ(times.value().segments[0].braid_gbps, 200);
  EXPECT_FALSE(times.value().segments[0].call_us);
  EXPECT_EQ(times.value().segments[3].transfer_us, 3);
  ASSERT_EQ(times.value().methods.size(), 2u);
  EXPECT_DOUBLE_EQ(times.value().methods[1].both_ms, 10);
}

TEST(CopyTimes, TheRecordedOnesAreThoseOfTheRecord) {
  const serving::CopyTimes recorded = serving::h200_copies();
  const auto in_file = serving::read_copy_times(
      BRAID_SOURCE_DIR "/docs/measurements/2026-11-28-2xH200-copies.jsonl");
  ASSERT_TRUE(in_file.ok()) << in_file.status().message();
  ASSERT_EQ(recorded.segments.size(), in_file.value().segments.size());
  for (size_t i = 0; i < recorded.segments.size(); ++i)
    EXPECT_EQ(recorded.segments[i].one_by_one_gbps, in_file.value().segments[i].one_by_one_gbps);
  EXPECT_EQ(recorded.methods.size(), in_file.value().methods.size());
}

// The links of the simulator carry what rotation was measured to carry, not what larger copies do.
TEST(CopyTimes, LinksAreThoseOfTheRecordedRotation) {
  std::ifstream file(BRAID_SOURCE_DIR "/docs/measurements/2026-11-28-2xH200-copies.jsonl");
  int found = 0;
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record["what"] != "bandwidth" || record["block_bytes"] != 4 << 20) continue;
    for (const auto& [key, name] : {std::pair("native_gbps", "pcie5"), {"braid_gbps", "braid2"}}) {
      const serving::Link link = serving::find_link(name).value();
      const double measured = median(record[key].get<std::vector<double>>());
      const std::string way = record["moves"];
      EXPECT_NEAR(way == "up"     ? link.load_gbps
                  : way == "down" ? link.save_gbps
                                  : link.both_gbps,
                  measured, 0.05)
          << name << " " << way;
      ++found;
    }
  }
  EXPECT_EQ(found, 6);
}

TEST(CopyTimes, AMeasurementThatIsWrongIsRefusedWithItsLineAndKey) {
  const auto refused = [](const std::string& text) { return read(text).status().message(); };
  expect_says(refused(good() + "{\n"), ".jsonl:7");
  expect_says(refused(good() + segment("aside", 1, 1, "[1]")), ".jsonl:7: moves");
  expect_says(refused(good() + segment("up", 65536, 0, "[1]")), ".jsonl:7: segments");
  expect_says(refused(good() + segment("up", 65536, 1, "[]")), ".jsonl:7: one_by_one_gbps");
  std::string wrong = segment("up", 65536, 1, "[1]");
  wrong.replace(wrong.find("true"), 4, "false");
  expect_says(refused(good() + wrong), ".jsonl:7: verified: says that bytes were wrong");
  expect_says(refused(R"({"what":"server"})"), "has no copies of segments");
  expect_says(refused(""), "has no copies of segments");
}

TEST(CopyFigures, SayWhatTheMeasurementSaysOfThePapersWords) {
  const std::string by_tokens = report_of_figure("4");
  expect_says(by_tokens, "less than 5 % of the theoretical peak | appears | 2.0 to 2.0 GB/s");
  expect_says(by_tokens, "(within 10 %) | appears |");
  // 512 segments of 64 layers are 8 blocks of 16 tokens.
  expect_says(by_tokens,
              "Qwen2.5-32B: GB/s\n\n| tokens each way | one by one (vLLM) | batches | "
              "braid, every link |\n|---|---|---|---|\n| 128 | 2 | 100 | 200 |");
  const std::string by_size = report_of_figure("5");
  expect_says(by_size,
              "(90 % of what it reaches) | appears | one by one, 90 % of 100 GB/s are "
              "reached from 8M on");
  expect_says(report_of_figure("12"), "up to 4 MB | **does not appear** | longer: GPU to host 64K");
  const std::string methods = report_of_figure("table-1");
  expect_says(methods, "| duplex | 10 |");
  expect_says(methods,
              "| naive: 10.75 GB/s to the host, 9.86 to the GPU; end to end 33.25 times DuplexKV | "
              "1.00, 2.00 GB/s; 3.00 times | 1556.15 ms there, 30.00 ms here |");
}

TEST(CopyFigures, WithoutSegmentsOf64KiBThereIsNoFigure4) {
  const auto times = read(std::string(kTable1) + "\n" + segment("both", 4096, 1, "[1]"));
  Setting setting;
  setting.copies = times.value();
  Laboratory laboratory(1, 1);
  expect_says(make_figure("4", setting, laboratory).status().message(),
              "has no segments of 64 KiB both ways");
}

}  // namespace
}  // namespace braid::tools::serving_figures
