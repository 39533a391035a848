// The paper's figures that a simulation can make. Figures 4, 5, 12, 25 and table 1 are
// measurements of copies, and 6 to 11 and 13 to 15 are drawings.
#include <fmt/core.h>

#include <string_view>

#include "base/try.h"
#include "serving/policies/make_policy.h"
#include "serving/simulator/simulate.h"
#include "tools/serving/designer.h"

namespace braid::tools::serving_figures {
namespace {

using namespace shown;  // the metrics by name

constexpr const char* kQwen = "Qwen2.5-32B";
constexpr const char* kGpu = "GH200";

Result<Figure> figure_1(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, kGpu, designer.chats()));
  Figure figure{.title = "Static policies: P99 by load", .setting = words_of(base)};
  BRAID_LET(panel,
            designer.by_load("WF, SF and FCFS", base,
                             {vllm(), plain("swapped_first", "c2c"), plain("waiting_first", "c2c")},
                             {kTtftP99, kTbtP99, kLongestP99}));
  figure.panels = {panel};
  figure.claims = {
      {"WF favors new arrivals, reducing TTFT", 0, "fcfs_recompute (vLLM)", "waiting_first",
       kTtftP99, true, 1.0},
      {"but significantly increasing TBT, as running requests are paused for a long time", 0,
       "waiting_first", "fcfs_recompute (vLLM)", kTbtP99, true, 1.0},
      {"the same by the longest gap of a request", 0, "waiting_first", "fcfs_recompute (vLLM)",
       kLongestP99, true, 1.0},
      {"SF protects TBT", 0, "waiting_first", "swapped_first", kTbtP99, true, 1.0},
      {"but degrades to FCFS-like performance", 0, "swapped_first", "waiting_first", kTtftP99, true,
       1.0},
  };
  return figure;
}

Result<Figure> figure_2(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, kGpu, designer.chats()));
  Figure figure{.title = "Swap bandwidth: P99 of vLLM with swapping, and of RotaSched",
                .setting = words_of(base)};
  const Designer::Change change = [](Case& one, double gbps) {
    one.engine.link = {"given", gbps, gbps, 2 * gbps, false, true, 20, "the variable"};
    return Status();
  };
  for (const Arm& arm : {plain("swapped_first", "c2c"), plain("waiting_first", "c2c"),
                         paper_on("c2c"), braid_on("c2c")}) {
    BRAID_LET(panel, designer.by_parameter(arm.name, base, arm, {1.05, 1.3}, "GB/s each way",
                                           {10, 25, 50, 100, 200, 400}, change,
                                           {kTtftP99, kTbtP99, kTtft, kTbtTokens}));
    figure.panels.push_back(panel);
  }
  return figure;
}

Result<Figure> figure_16(Designer& designer) {
  Figure figure{.title = "TTFT and TBT attainment by load",
                .setting =
                    "three models, two kinds of "
                    "lengths, GH200; Poisson arrivals"};
  for (const char* model : {"Llama-3-8B", kQwen, "Mixtral-8x7B"}) {
    std::vector<Arm> arms = {vllm(), plain("lightllm-like", "c2c"), plain("ltr-like", "c2c"),
                             paper_on("c2c"), braid_on("c2c")};
    // Section 5.2: NEO has no mixtures of experts.
    if (std::string_view(model) != "Mixtral-8x7B") arms.push_back(plain("neo-like", "c2c"));
    for (const Lengths& lengths : {designer.chats(), designer.long_chats()}) {
      BRAID_LET(base, designer.base(model, kGpu, lengths));
      BRAID_LET(panel, designer.by_load(fmt::format("{}, {}", model, lengths.name()), base, arms,
                                        {kTtft, kTbtTokens, kTbtMeans, kTbtLongest, kRotations}));
      const size_t at = figure.panels.size();
      figure.panels.push_back(panel);
      const std::string where = fmt::format(" [{}, {}]", model, lengths.name());
      figure.claims.push_back(
          {"SuperInfer significantly surpasses baselines in TTFT SLO "
           "attainment, especially at high request rates" +
               where,
           at, "paper (c2c)", "fcfs_recompute (vLLM)", kTtft, true, 1.05});
      figure.claims.push_back(
          {"maintains TBT SLO attainment superior or comparable to baselines, "
           "within 3 points" +
               where,
           at, "paper (c2c)", "fcfs_recompute (vLLM)", kTbtTokens, true, 1.05, 0.03});
      figure.claims.push_back({"the same by the means of requests" + where, at, "paper (c2c)",
                               "fcfs_recompute (vLLM)", kTbtMeans, true, 1.05, 0.03});
      figure.claims.push_back({"among baselines, LTR achieves the best TTFT SLO attainment" + where,
                               at, "ltr-like", "lightllm-like", kTtft, true, 1.05});
    }
  }
  return figure;
}

Result<Figure> figure_17(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, kGpu, designer.chats()));
  Figure figure{.title = "Ablation: RotaSched with and without DuplexKV",
                .setting = words_of(base)};
  Arm low = paper_on("c2c-naive"), high = paper_on("c2c-naive");
  low.name = "w/o DuplexKV (L, 300 blocks)";
  low.parameters.transfer_blocks = 300;
  high.name = "w/o DuplexKV (H, 2400 blocks)";
  BRAID_LET(panel, designer.by_load("Ablation", base, {vllm(), low, high, paper_on("c2c")},
                                    {kTtft, kTbtTokens, kStalls}));
  figure.panels = {panel};
  figure.claims = {
      {"RotaSched (L) effectively mitigates TTFT SLO violations", 0, low.name,
       "fcfs_recompute (vLLM)", kTtft, true, 1.05},
      {"while maintaining comparable TBT SLO attainment, within 3 points", 0, low.name,
       "fcfs_recompute (vLLM)", kTbtTokens, true, 1.05, 0.03},
      {"a large B_xfer with an inefficient engine (H) yields significantly lower TBT attainment", 0,
       low.name, high.name, kTbtTokens, true, 1.05},
      {"the full SuperInfer achieves even greater TTFT improvements than (L)", 0, "paper (c2c)",
       low.name, kTtft, true, 1.05},
  };
  return figure;
}

// Figures 18 to 21 change one parameter of the policy.
Result<Figure> parameter_figure(Designer& designer, const std::string& title, const char* x_name,
                                const std::vector<double>& x, serving::LagParameters lag,
                                const Designer::Change& change, const std::vector<Shown>& metrics) {
  BRAID_LET(base, designer.base(kQwen, kGpu, designer.chats()));
  Figure figure{.title = title, .setting = words_of(base)};
  for (Arm arm : {paper_on("c2c"), braid_on("c2c")}) {
    arm.parameters.lag = lag;
    BRAID_LET(panel,
              designer.by_parameter(arm.name, base, arm, {1.05, 1.3}, x_name, x, change, metrics));
    figure.panels.push_back(panel);
  }
  return figure;
}

Result<Figure> figure_18(Designer& designer) {
  return parameter_figure(designer, "alpha, with beta_B = beta_F = 0", "alpha", {1, 2, 3, 4, 6, 8},
                          {.alpha = 1, .beta_tbt = 0, .beta_ttft = 0},
                          [](Case& one, double alpha) {
                            one.parameters.lag.alpha = alpha;
                            return Status();
                          },
                          {kTtft, kTbtTokens});
}

Result<Figure> figure_19(Designer& designer) {
  return parameter_figure(designer, "beta_F, with alpha = 1 and beta_B = 0", "beta_F",
                          {0, 0.5, 1, 2, 3, 4}, {.alpha = 1, .beta_tbt = 0, .beta_ttft = 0},
                          [](Case& one, double beta) {
                            one.parameters.lag.beta_ttft = beta;
                            return Status();
                          },
                          {kTtftP99, kTbtP99});
}

Result<Figure> figure_20(Designer& designer) {
  return parameter_figure(designer, "beta_B, with alpha = 1 and beta_F = 0", "beta_B",
                          {-50, -20, -5, 0, 5, 20, 50}, {.alpha = 1, .beta_tbt = 0, .beta_ttft = 0},
                          [](Case& one, double beta) {
                            one.parameters.lag.beta_tbt = beta;
                            return Status();
                          },
                          {kTtftP99, kTbtP99});
}

Result<Figure> figure_21(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, kGpu, designer.chats()));
  Figure figure{.title = "B_xfer", .setting = words_of(base)};
  BRAID_LET(panel, designer.by_parameter("paper (c2c)", base, paper_on("c2c"), {1.05, 1.3},
                                         "B_xfer, blocks", {150, 300, 600, 1200, 2400, 4800},
                                         [](Case& one, double blocks) {
                                           one.parameters.transfer_blocks =
                                               static_cast<uint32_t>(blocks);
                                           return Status();
                                         },
                                         {kTtftP99, kTbtP99, kTtft, kTbtTokens}));
  figure.panels = {panel};
  return figure;
}

Result<Figure> figure_22(Designer& designer) {
  Figure figure{.title = "Throughput", .setting = "three models, chat-like lengths, GH200"};
  for (const char* model : {"Llama-3-8B", kQwen, "Mixtral-8x7B"}) {
    BRAID_LET(base, designer.base(model, kGpu, designer.chats()));
    BRAID_LET(panel, designer.by_load(model, base, {vllm(), paper_on("c2c"), braid_on("c2c")},
                                      {kThroughput, kGoodput, kRecomputes}));
    figure.claims.push_back({fmt::format("comparable or slightly better throughput than vLLM, "
                                         "within 5 % [{}]",
                                         model),
                             figure.panels.size(), "paper (c2c)", "fcfs_recompute (vLLM)",
                             kThroughput, true, 1.05, 0.05});
    figure.panels.push_back(panel);
  }
  return figure;
}

// One run of a case with seed 1.
Result<RunResult> single_run(const Case& one) {
  Laboratory alone(1, 1);
  BRAID_TRY(alone.run({one}));
  return alone.results(one)[0][0];
}

Result<Figure> figure_23(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, kGpu, designer.chats()));
  BRAID_LET(knee, designer.knee_rps(base));
  Figure figure{.title = "FCFS and SJF: KV cache in use, requests waiting",
                .setting = fmt::format("{}, {:.2f} requests/s: 1.2 of the knee; one run of seed 1",
                                       words_of(base), 1.2 * knee)};
  figure.curves = {{"KV cache in use", "s", "%", {}}, {"requests waiting", "s", "", {}}};
  for (const Arm& arm : {vllm(), plain("sjf_oracle", "pcie5")}) {
    BRAID_LET(one, designer.with(base, arm));
    one.arrivals.rate_rps = 1.2 * knee;
    BRAID_LET(run, single_run(one));
    Curve usage{arm.name, {}}, waiting{arm.name, {}};
    for (const serving::Sample& sample : run.record.timeline) {
      const double at_s = static_cast<double>(sample.at_us) * 1e-6;
      usage.points.emplace_back(at_s, 100 * sample.kv_share);
      waiting.points.emplace_back(at_s, sample.waiting);
    }
    figure.curves[0].curves.push_back(usage);
    figure.curves[1].curves.push_back(waiting);
  }
  return figure;
}

Result<Figure> figure_24(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, kGpu, designer.chats()));
  BRAID_LET(knee, designer.knee_rps(base));
  Figure figure{.title = "Distribution of TBT",
                .setting = words_of(base) + "; one run of seed 1 each"};
  for (const Arm& arm : {plain("lightllm-like", "c2c"), paper_on("c2c"), braid_on("c2c")}) {
    CurvePanel panel{arm.name, "TBT, ms", "% of tokens", {}};
    for (const double load : {0.95, 1.15, 1.5}) {
      BRAID_LET(one, designer.with(base, arm));
      one.arrivals.rate_rps = load * knee;
      BRAID_LET(run, single_run(one));
      Curve curve{fmt::format("{:.2f} of the knee", load), {}};
      for (size_t index = 4; index < run.gap_quantiles_ms.size() && index < 990; index += 5)
        curve.points.emplace_back(run.gap_quantiles_ms[index],
                                  static_cast<double>(index + 1) * 0.1);
      panel.curves.push_back(curve);
    }
    figure.curves.push_back(panel);
  }
  return figure;
}

}  // namespace

std::vector<Maker> figures_of_the_paper() {
  return {
      {{"1", "static policies: P99 by load"}, figure_1},
      {{"2", "P99 by swap bandwidth"}, figure_2},
      {{"16", "TTFT and TBT attainment by load, three models"}, figure_16},
      {{"17", "ablation: RotaSched without DuplexKV"}, figure_17},
      {{"18", "alpha"}, figure_18},
      {{"19", "beta_F"}, figure_19},
      {{"20", "beta_B"}, figure_20},
      {{"21", "B_xfer"}, figure_21},
      {{"22", "throughput, three models"}, figure_22},
      {{"23", "FCFS and SJF over time"}, figure_23},
      {{"24", "distribution of TBT"}, figure_24},
  };
}

}  // namespace braid::tools::serving_figures
