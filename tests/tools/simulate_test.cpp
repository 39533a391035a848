// `braid simulate`, as a person runs it: small runs, what they write, and what is refused.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Simulate : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("braid_simulate_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  int run(const std::string& arguments, const std::string& what = "serving") {
    const std::string command = "timeout 120 '" BRAID_COMMAND "' simulate " + what + " " +
                                arguments + " >'" + path("out") + "' 2>'" + path("err") +
                                "' </dev/null";
    const int status = std::system(command.c_str());
    out_ = read_all(path("out"));
    err_ = read_all(path("err"));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void expect_refused(const std::string& arguments, const std::string& cause,
                      const std::string& remedy, const std::string& what = "serving") {
    EXPECT_EQ(run(arguments, what), 1) << arguments;
    EXPECT_NE(err_.find(cause), std::string::npos) << arguments << ": " << err_;
    EXPECT_NE(err_.find(remedy), std::string::npos) << arguments << ": " << err_;
  }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
  std::string out_, err_;
};

constexpr const char* kSmall = " --seeds 2 --seconds 30 --token-budget 512 ";

TEST_F(Simulate, PrintsOneLineForEachPolicy) {
  ASSERT_EQ(run("--rate 3 --policy fcfs_recompute,edf --model Llama-3-8B" + std::string(kSmall)), 0)
      << err_;
  EXPECT_NE(out_.find("simulated: Llama-3-8B"), std::string::npos) << out_;
  EXPECT_NE(out_.find("step times: measured on NVIDIA H200"), std::string::npos) << out_;
  EXPECT_NE(out_.find("\nfcfs_recompute    100.0"), std::string::npos) << out_;
  EXPECT_NE(out_.find("\nedf               100.0"), std::string::npos) << out_;
  EXPECT_NE(out_.find("\n  ± (95 %)          0.0"), std::string::npos) << out_;
  ASSERT_EQ(run("--rate 3 --policy edf --model Llama-3-8B --seconds 30 --seeds 1"), 0) << err_;
  EXPECT_EQ(out_.find("±"), std::string::npos) << "one seed has no interval: " << out_;
}

// Nobody's first token comes within a microsecond; and one that runs alone has the others wait.
TEST_F(Simulate, ObjectivesAndSeatsAreTheUsers) {
  ASSERT_EQ(run("--rate 3 --policy edf --model Llama-3-8B --ttft-ms 0.001" + std::string(kSmall)),
            0)
      << err_;
  EXPECT_NE(out_.find("\nedf                 0.0"), std::string::npos) << out_;
  ASSERT_EQ(run("--rate 3 --policy edf --model Llama-3-8B --max-running 1" + std::string(kSmall)),
            0)
      << err_;
  EXPECT_EQ(out_.find("\nedf               100.0"), std::string::npos) << out_;
}

// What a figure would pass over is refused.
TEST_F(Simulate, AFigureChoosesItsOwnRuns) {
  for (const std::string option :
       {"--model Llama-3-8B", "--gpu H200", "--link pcie5", "--policy edf", "--host-gb 1",
        "--hbm-gb 100", "--alpha 1", "--rate 3", "--load 1", "--gpus 2", "--transfer-blocks 7"})
    expect_refused("--figure 21 " + option, option.substr(0, option.find(' ')), "--figure");
  expect_refused("--figure 21 --no-late-only", "--late-only", "--figure");
}

TEST_F(Simulate, SaysOfARecordWhereItLoses) {
  const std::string folder = path("figures");
  ASSERT_EQ(run("--figure classes --out '" + folder + "'" + kSmall), 0) << err_;
  ASSERT_EQ(run("--losses '" + folder + "/figure-classes.json'"), 0) << err_;
  EXPECT_NE(out_.find("### Where it loses"), std::string::npos) << out_;
  EXPECT_NE(read_all(folder_ / "figures" / "report.md").find(out_), std::string::npos) << out_;
  const std::string nobody = write("nobody.json", R"({"seeds": 3, "panels": []})");
  ASSERT_EQ(run("--losses '" + nobody + "'"), 0) << err_;
  EXPECT_EQ(out_, "") << "nobody is compared in it";
  expect_refused("--losses '" + folder + "/report.md'", "report.md is not the JSON of a figure",
                 "figure-NAME.json");
}

TEST_F(Simulate, AFigureIsJsonAndSvgAndAReport) {
  ASSERT_EQ(run("--figure 21 --out '" + path("figures") + "'" + kSmall), 0) << err_;
  const Json document = Json::parse(read_all(folder_ / "figures" / "figure-21.json"));
  EXPECT_EQ(document["kind"], "simulated");
  EXPECT_EQ(document["seeds"], 2);
  const Json& series = document["panels"][0]["series"];
  ASSERT_EQ(series.size(), 2u);
  for (const Json& one : series) {
    ASSERT_EQ(one["points"].size(), 6u);
    for (const Json& point : one["points"]) {
      ASSERT_EQ(point["TTFT attainment"].size(), 2u);
      for (const double share : point["TTFT attainment"]) {
        EXPECT_GE(share, 0);
        EXPECT_LE(share, 1);
      }
      EXPECT_GT(point["P99 TTFT"][0], 0);
    }
  }
  EXPECT_EQ(read_all(folder_ / "figures" / "figure-21.svg").rfind("<svg ", 0), 0u);
  const std::string report = read_all(folder_ / "figures" / "report.md");
  EXPECT_NE(report.find("## 21: B_xfer"), std::string::npos);
  EXPECT_NE(report.find("(figure-21.svg)"), std::string::npos);
  // Each input with its source.
  for (const char* input :
       {"GPU GH200: 144 GB (SuperInfer section 5.1", "host memory: 400 GB a GPU for KV caches",
        "207.6 both ways (profiles/h200x4.json",
        "model Qwen2.5-32B: config.json of Qwen/Qwen2.5-32B",
        "lengths chat-like: log-normal; means 161 and 338", "link pcie5: 54.9 GB/s to the GPU",
        "alpha 3, beta_B 0, beta_F 0.5, B_xfer 2400 blocks"})
    EXPECT_NE(report.find(input), std::string::npos) << input << " is not in " << report;
}

TEST_F(Simulate, SaysThePapersLargestGainBesideOurs) {
  ASSERT_EQ(
      run("--figure 22 --seeds 2 --seconds 10 --token-budget 512 --out '" + path("figures") + "'"),
      0)
      << err_;
  const std::string report = read_all(folder_ / "figures" / "report.md");
  EXPECT_NE(report.find("| up to 29.2 % more throughput at high request rates | up to "),
            std::string::npos);
  EXPECT_NE(report.find("| over fcfs_recompute (vLLM) at "), std::string::npos);
}

TEST_F(Simulate, TwoRunsAreEqualBitForBit) {
  for (const char* name : {"one", "two"})
    ASSERT_EQ(run("--figure 17 --jobs " + std::string(*name == 'o' ? "1" : "2") + " --out '" +
                  path(name) + "'" + kSmall),
              0)
        << err_;
  for (const char* file : {"figure-17.json", "figure-17.svg", "report.md"}) {
    EXPECT_FALSE(read_all(folder_ / "one" / file).empty());
    EXPECT_EQ(read_all(folder_ / "one" / file), read_all(folder_ / "two" / file)) << file;
  }
  // Of each claim it says whether the simulation shows it.
  const Json document = Json::parse(read_all(folder_ / "one" / "figure-17.json"));
  ASSERT_EQ(document["claims"].size(), 4u);
  for (const Json& claim : document["claims"]) {
    const std::string verdict = claim["verdict"];
    EXPECT_TRUE(verdict == "appears" || verdict == "**does not appear**" ||
                verdict == "cannot be told")
        << verdict;
    EXPECT_NE(claim["figures"].get<std::string>().find("±"), std::string::npos) << claim;
  }
}

TEST_F(Simulate, TakesATrace) {
  std::string text = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (int second = 10; second < 60; ++second)
    text += "2024-01-01 00:00:" + std::to_string(second) + ".5,900,200\n";
  const std::string trace = write("trace.csv", text);
  ASSERT_EQ(run("--trace '" + trace + "' --rate 2 --policy braid" + kSmall), 0) << err_;
  EXPECT_NE(out_.find("the given trace, stretched"), std::string::npos) << out_;
  const std::string broken = write("broken.csv", text + "2024-01-01 00:01:00.5,900,\n");
  expect_refused("--trace '" + broken + "'", "broken.csv:52: GeneratedTokens", "Mend the line");
}

TEST_F(Simulate, LengthsReplaceTheSyntheticOnes) {
  const std::string lengths = write("mine.csv", "prompt_tokens,output_tokens\n500,60\n700,90\n");
  ASSERT_EQ(run("--lengths '" + lengths + "' --rate 2 --policy braid" + kSmall), 0) << err_;
  EXPECT_NE(out_.find("mine.csv lengths"), std::string::npos) << out_;
  expect_refused("--trace '" + lengths + "'", "has lengths but no times", "--lengths");
}

std::string calibration(double error, const std::string& more = "") {
  return R"({"format": "braid-step-time-1", "gpu": "Test GPU", "date": "2026-01-02", "constants": {
  "matmul_tflops": 600, "weight_gbps": 4000, "matmul_us": 3, "attention_gbps": 3500,
  "attention_us": 5, "prefill_tflops": 400, "prefill_us": 10, "glue_gbps": 2500, "glue_us": 15,
  "sequence_us": 1, "step_us": 50)" +
         more + R"(}, "held_out_median_relative_error": {"gemm": 0.02, "all": )" +
         std::to_string(error) +
         R"(}, "held_out_seed": 1, "grid": [{"section": "sampling", "sequences": 1, "us": 51}]})";
}

TEST_F(Simulate, StepTimesComeFromACalibration) {
  const std::string good = write("good.json", calibration(0.04));
  ASSERT_EQ(run("--calibration '" + good + "' --rate 2 --policy braid" + kSmall), 0) << err_;
  EXPECT_NE(out_.find("measured on Test GPU, 2026-01-02"), std::string::npos) << out_;
}

TEST_F(Simulate, ACalibrationThatMeansLittleIsRefused) {
  const std::string poor = write("poor.json", calibration(0.2));
  expect_refused("--calibration '" + poor + "'", "held_out_median_relative_error.all",
                 "Measure again");
  const std::string unknown = write("unknown.json", calibration(0.01, ", \"speed\": 1"));
  expect_refused("--calibration '" + unknown + "'", "speed", "matmul_tflops");
}

TEST_F(Simulate, ARateIsPositiveAndTheOnlyMeasureOfLoad) {
  expect_refused("--rate 0", "--rate", "not a number above 0");
  expect_refused("--rate -1", "--rate", "not a number above 0");
  expect_refused("--rate 1 --load 0.5", "--rate", "--load");
}

TEST_F(Simulate, OneFolderIsMadeAndNoPath) {
  expect_refused("--figure 21 --out '" + path("none/figures") + "'" + kSmall,
                 "none/figures' cannot be made", "Name a folder");
  EXPECT_FALSE(fs::exists(folder_ / "none"));
  expect_refused("--figure 21 --out '" + write("file", "") + "'", "cannot be made",
                 "Name a folder");
}

// Each of these would run for hours.
TEST_F(Simulate, OptionsAreCheckedBeforeAnythingIsSimulated) {
  const std::string hours = " --load 1.05 --seconds 1000000 --seeds 1000";
  expect_refused("--policy braid,fifo" + hours, "braid: there is no policy 'fifo'", "edf");
  expect_refused("--link usb" + hours, "there is no link 'usb'", "pcie5");
  expect_refused("--link 55,55" + hours, "there is no link '55,55'", "LOAD,SAVE,BOTH");
  expect_refused("--policy paper --alpha -1" + hours, "alpha is -1", "0 or more");
  for (const std::string figure : {"all", "cluster"}) {
    const std::string runs = "--seeds 1000 --figure " + figure;
    expect_refused(runs + " --testbed nope", "no cluster profile 'nope'", "h800x8-2node",
                   "transfer");
    expect_refused(runs + " --limited nope.json", "no cluster profile 'nope.json'", "limited-rails",
                   "transfer");
    expect_refused(runs + " --out '" + path("none/report") + "'", "none/report' cannot be made",
                   "Name a folder", "transfer");
    expect_refused(runs + " --json '" + path("none/report.json") + "'", "cannot write",
                   "Name a file", "transfer");
  }
}

TEST_F(Simulate, NamesThatAreNoneAreToldWithThoseThereAre) {
  expect_refused("--figure nope --out '" + path("figures") + "'", "no figure 'nope'", "frontier");
  EXPECT_FALSE(fs::exists(folder_ / "figures"));
  expect_refused("--figure nope", "no figure 'nope'", "all, tebench, kv", "transfer");
  expect_refused("", "'nope' is not a command", "serving, transfer", "nope");
  expect_refused("", "'braid simulate' needs a command", "serving, transfer", "");
}

TEST_F(Simulate, BadInputIsRefusedWithARemedy) {
  expect_refused("--model GPT --rate 1", "no model 'GPT'", "Qwen2.5-32B");
  expect_refused("--hbm-gb 60 --rate 1", "does not fit on H200", "smaller model");
  const std::string long_one = write("long.csv", "prompt_tokens,output_tokens\n900000,5\n");
  expect_refused("--lengths '" + long_one + "' --rate 1", "long.csv:2: request 0 of 900000 + 5",
                 "more memory");
  for (const char* link : {"1e-9,1,1", "1,1,1e-300", "1,2e6,1", "nan,1,1", "1,1", "1,1,1,1"})
    expect_refused(std::string("--rate 1 --link ") + link, "no link '" + std::string(link) + "'",
                   "each from 0.001 to 1000000");
  expect_refused("--rate 1e6 --seconds 1e6", "requests are too many for one run", "--seconds");
  // No GPUs: `all` is refused before anything is simulated.
  for (const char* figure : {"weights", "tiers", "all"})
    expect_refused(std::string("--testbed limited-rails --figure ") + figure,
                   "a host of limited-rails has 0 GPUs", "another testbed", "transfer");
}

}  // namespace
