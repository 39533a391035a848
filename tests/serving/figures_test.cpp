// What the figures of `braid simulate serving` say of the runs they are made of.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serving/cost/calibration.h"
#include "tools/serving/designer.h"
#include "tools/serving/losses.h"
#include "tools/serving/report.h"

namespace braid::tools::serving_figures {
namespace {

constexpr const char* kFcfs = "fcfs_recompute (vLLM)";

// Small: 2 GB of KV cache, some 30 requests, 20 s of arrivals.
Case small_case(const std::string& policy, double rate_rps) {
  Case one;
  one.engine.model = serving::find_model("Llama-3-8B").value();
  one.engine.constants = serving::h200_calibration().constants;
  one.engine.gpu = serving::find_gpu("H200").value();
  one.engine.link = serving::find_link("braid4").value();
  one.engine.host = serving::pcie_host();
  one.engine.hbm_share = 1;
  one.engine.activation_bytes = 0;
  one.engine.gpu.hbm_bytes = static_cast<double>(one.engine.model.weight_bytes()) + 2e9;
  one.policy = policy;
  one.lengths = std::make_shared<Lengths>(serving::chat_like());
  one.arrivals = {.rate_rps = rate_rps, .seconds = 20};
  return one;
}

// From where nobody is late to where FCFS is.
const std::vector<double> kRates = {2, 4, 40};

Figure small_figure() {
  Panel panel{"small", "rate", kRates, {}, {}, {shown::kTtft, shown::kGoodput}};
  for (const auto& [name, policy] :
       {std::pair(kFcfs, "fcfs_recompute"), std::pair("braid (braid4)", "braid")}) {
    Series series{name, {}};
    for (const double rate : kRates) series.cases.push_back(small_case(policy, rate));
    panel.series.push_back(series);
  }
  Figure figure;
  figure.panels = {panel};
  return figure;
}

class FigureClaims : public ::testing::Test {
 protected:
  void run(int seeds) {
    laboratory_ = std::make_unique<Laboratory>(seeds, 2);
    const Panel& panel = figure_.panels[0];
    for (const Series& series : panel.series) {
      const Status done = laboratory_->run(series.cases);
      ASSERT_TRUE(done.ok()) << done.message();
    }
  }
  Judged judged(const Claim& claim) const { return judge(figure_, claim, *laboratory_); }
  static Claim fcfs_against_itself(double margin) {
    Claim claim{"words", 0, kFcfs, kFcfs, shown::kTtft};
    claim.margin = margin;
    return claim;
  }
  // Load of 2 and of 40 requests a second.
  static Claim more_at_low_load() {
    Claim claim = fcfs_against_itself(0);
    claim.between = {2, 40};
    return claim;
  }

  Figure figure_ = small_figure();
  std::unique_ptr<Laboratory> laboratory_;
};

TEST_F(FigureClaims, OneSeedTellsNothing) {
  run(1);
  EXPECT_EQ(judged(more_at_low_load()).verdict, "cannot be told");
  EXPECT_EQ(judged(fcfs_against_itself(0.02)).verdict, "cannot be told");
  EXPECT_EQ(judged(fcfs_against_itself(-0.02)).verdict, "cannot be told");
}

TEST_F(FigureClaims, EachSideHasAnXOfItsOwn) {
  run(3);
  const Judged more = judged(more_at_low_load());
  EXPECT_EQ(more.verdict, "appears") << more.figures;
  EXPECT_GT(more.difference.mean, 0.2);
  EXPECT_NE(more.figures.find("fcfs_recompute (vLLM) at 2 - at 40"), std::string::npos)
      << more.figures;
  Claim less = more_at_low_load();
  less.between = {40, 2};
  EXPECT_EQ(judged(less).verdict, "**does not appear**");
  EXPECT_EQ(judged(fcfs_against_itself(0.02)).verdict, "appears");
  EXPECT_EQ(judged(fcfs_against_itself(0)).verdict, "**does not appear**");
}

TEST_F(FigureClaims, ALoadIsTheFirstAtWhichFcfsFails) {
  run(3);
  Claim claim{"words", 0, "braid (braid4)", kFcfs, shown::kTtft};
  claim.fails_first = kFcfs;
  const Judged found = judged(claim);
  EXPECT_NE(found.figures.find("at 40"), std::string::npos) << found.figures;
  for (Series& series : figure_.panels[0].series) series.cases.pop_back();
  figure_.panels[0].x.pop_back();
  const Judged none = judged(claim);
  EXPECT_EQ(none.verdict, "cannot be told");
  EXPECT_NE(none.figures.find("never falls so low"), std::string::npos) << none.figures;
}

// A claim that all are equal is about each series and each x by itself, more or less.
TEST_F(FigureClaims, EqualityIsOfEverySeriesEitherWay) {
  run(3);
  Claim claim{"words", 0, "", kFcfs, shown::kTtft};
  claim.is_equality = true;
  claim.margin = 0.02;
  claim.until = 4;
  EXPECT_EQ(judged(claim).verdict, "appears") << judged(claim).figures;
  claim.until = 40;  // there `braid` serves more of them in time, by far
  const Judged beyond = judged(claim);
  EXPECT_EQ(beyond.verdict, "**does not appear**") << beyond.figures;
  EXPECT_NE(beyond.figures.find("braid (braid4) - fcfs_recompute (vLLM) at 40"), std::string::npos)
      << beyond.figures;
  EXPECT_LT(beyond.difference.mean, -0.02);
  claim.margin = 1;
  EXPECT_EQ(judged(claim).verdict, "appears") << judged(claim).figures;
  claim.from = 1e6;  // the figure has nothing there
  EXPECT_EQ(judged(claim).verdict, "cannot be told");
}

// "Than the baselines" is than each of them: one that is level with it denies the claim.
TEST_F(FigureClaims, AgainstBaselinesIsAgainstEach) {
  Series level = figure_.panels[0].series[1];
  level.name = "level-like";
  run(3);
  Claim claim{"words", 0, "braid (braid4)", "", shown::kTtft};
  claim.from = 40;
  EXPECT_EQ(judged(claim).verdict, "appears") << judged(claim).figures;
  figure_.panels[0].series.push_back(level);
  const Judged found = judged(claim);
  EXPECT_EQ(found.verdict, "**does not appear**");
  EXPECT_NE(found.figures.find("braid (braid4) - level-like"), std::string::npos) << found.figures;
}

TEST_F(FigureClaims, EqualityCannotBeToldFromOneSeed) {
  run(1);
  Claim claim{"words", 0, "", kFcfs, shown::kTtft};
  claim.is_equality = true;
  claim.margin = 1;
  EXPECT_EQ(judged(claim).verdict, "cannot be told");
}

// Student's t has no step behind the end of its table.
TEST(Estimate, IsByStudentsTForAnyNumberOfSeeds) {
  const auto t = [](size_t count) {
    std::vector<double> values;
    for (size_t i = 0; i < count; ++i) values.push_back(i % 2 == 0 ? 1 : -1);
    double squares = 0;
    const Estimate found = estimate(values);
    for (const double value : values) squares += (value - found.mean) * (value - found.mean);
    const auto n = static_cast<double>(count);
    return found.half_width / std::sqrt(squares / (n - 1) / n);
  };
  EXPECT_NEAR(t(2), 12.706, 0.001);
  EXPECT_NEAR(t(31), 2.042, 0.001);
  EXPECT_NEAR(t(32), 2.0395, 0.001);
  EXPECT_NEAR(t(61), 2.0003, 0.001);
  EXPECT_NEAR(t(1000), 1.9623, 0.001);
}

TEST(Laboratory, RefusesMoreRequestsThanMemoryHolds) {
  Case one = small_case("braid", 1e6);
  one.arrivals.seconds = 1e6;
  Laboratory laboratory(1, 1);
  const std::string why = laboratory.run({one}).message();
  EXPECT_NE(why.find("1e+12 requests are too many for one run"), std::string::npos) << why;
  EXPECT_NE(why.find("fewer --seconds"), std::string::npos) << why;
}

TEST(Knee, IsThatOfAllSeeds) {
  constexpr int kSeeds = 5;
  Laboratory laboratory(kSeeds, 2);
  Case one = small_case("fcfs_recompute", 0);
  one.arrivals.rate_rps = laboratory.knee_rps(one).value();
  Case beyond = one;
  beyond.arrivals.rate_rps *= 1.1;
  ASSERT_TRUE(laboratory.run({one, beyond}).ok());
  const auto mean = [&](const Case& of) {
    return estimate(by_seed(laboratory.results(of), shown::kTtft.of)).mean;
  };
  EXPECT_GE(mean(one), kKneeAttainment);
  EXPECT_LT(mean(beyond), kKneeAttainment);
}

// The search ends at a limit: that is no knee.
TEST(Knee, IsNoneWhereFcfsIsNeverLateOrAlways) {
  Laboratory laboratory(1, 2);
  const auto refusal = [&](int64_t ttft_us) {
    Case one = small_case("fcfs_recompute", 0);
    one.lengths = std::make_shared<Lengths>(
        Lengths{"short", "given", Lengths::LogNormal{2, 0, 2}, Lengths::LogNormal{1, 0, 1}});
    one.arrivals.slo.ttft_us = ttft_us;
    one.arrivals.seconds = 20;
    return laboratory.knee_rps(one).status().message();
  };
  EXPECT_NE(refusal(1).find("with a TTFT of 0.001 ms: at 0.5 requests/s it serves less than 90 %"),
            std::string::npos)
      << refusal(1);
  EXPECT_NE(refusal(int64_t{1} << 40).find("at 1024 requests/s it serves at least 90 %"),
            std::string::npos)
      << refusal(int64_t{1} << 40);
}

// Results are kept by key: runs that differ must not share one.
TEST(Case, HasAKeyOfAllThatARunDependsOn) {
  const Case one = small_case("braid", 3);
  EXPECT_EQ(one.key(), small_case("braid", 3).key());
  const std::vector<std::function<void(Case&)>> changes = {
      [](Case& other) { other.engine.host.load_gbps = 1; },
      [](Case& other) { other.engine.host.save_gbps = 1; },
      [](Case& other) { other.engine.host.both_gbps = 1; },
      [](Case& other) { other.engine.host_bytes = 1; },
      [](Case& other) { other.engine.link.start_us += 1; },
      [](Case& other) { other.engine.max_running = 1; },
      [](Case& other) { other.arrivals.slo.ttft_us = 1; },
      [](Case& other) { other.arrivals.slo.tbt_us = 1; },
      [](Case& other) { other.parameters.late_only = false; },
  };
  for (size_t index = 0; index < changes.size(); ++index) {
    Case other = one;
    changes[index](other);
    EXPECT_NE(other.key(), one.key()) << index;
  }
}

// ---- Where it loses ----

using Json = nlohmann::ordered_json;

Json series(const std::string& name, const std::vector<double>& ttft,
            const std::vector<double>& gap_ms) {
  const Json low{{"x", 0.7}, {"TTFT attainment", {1, 1, 1}}, {"P99 longest gap", {100, 101, 102}}};
  const Json high{{"x", 1.15}, {"TTFT attainment", ttft}, {"P99 longest gap", gap_ms}};
  return {{"name", name}, {"points", {low, high}}};
}

std::string figure_json(int seeds) {
  const Json panel{{"title", "Qwen"},
                   {"x_name", "load / knee of FCFS"},
                   {"series",
                    {series(kFcfs, {0.80, 0.90, 0.70}, {100, 200, 300}),
                     series("ltr-like", {0.80, 0.91, 0.70}, {100, 200, 400}),
                     series("braid, all lags (pcie5)", {1, 1, 1}, {1, 1, 1}),
                     series("braid (pcie5)", {0.70, 0.81, 0.60}, {150, 150, 250}),
                     series("braid (braid4)", {0.90, 0.95, 0.70}, {200, 205, 333})}}};
  return Json{{"seeds", seeds}, {"panels", Json::array({panel})}}.dump();
}

TEST(Losses, AreWhereTheWholeIntervalSaysSo) {
  const std::string text = losses_of(figure_json(3), "f.json").value();
  EXPECT_NE(text.find("### Where it loses"), std::string::npos);
  EXPECT_NE(text.find("| braid (pcie5) | fcfs_recompute (vLLM) | TTFT attainment, points | 1.15: "
                      "-9.67 ±1.4 |\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("| braid (pcie5) | ltr-like | TTFT attainment, points | 1.15: -10 ±"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("all lags"), std::string::npos) << "a changed preset is no rival:\n" << text;
  // Four links against one: longer gaps, seed by seed.
  EXPECT_NE(text.find("| braid (braid4) | braid (pcie5) | P99 longest gap, % | 1.15: 34.4 ±"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("| braid (braid4) | fcfs_recompute (vLLM)"), std::string::npos)
      << "its gaps are longer on average, but the interval holds 0:\n"
      << text;
  EXPECT_EQ(text.find("0.7:"), std::string::npos) << "equal values are no loss:\n" << text;
}

TEST(Losses, AreNotToldFromOneSeed) {
  EXPECT_NE(losses_of(figure_json(1), "f.json").value().find("cannot be told"), std::string::npos);
}

TEST(Losses, OfAFigureThatComparesNobodyAreNotSaid) {
  EXPECT_EQ(losses_of(R"({"seeds": 3, "panels": []})", "f.json").value(), "");
  EXPECT_EQ(losses_of(R"({"seeds": 3, "curves": []})", "f.json").value(), "");
}

TEST(Losses, OfAnotherFileAreRefused) {
  for (const char* text : {"", "[1, 2]", R"({"panels": [{"series": [{"name": 3}]}]})"}) {
    const auto losses = losses_of(text, "f.json");
    ASSERT_FALSE(losses.ok()) << text;
    EXPECT_NE(losses.status().message().find("f.json is not the JSON of a figure"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace braid::tools::serving_figures
