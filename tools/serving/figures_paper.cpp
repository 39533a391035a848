// The paper's figures that a simulation can make. Figures 4, 5, 12 and table 1 are measurements of
// copies (figures_copies.cpp), 25 is one of unified memory, and 6 to 11 and 13 to 15 are drawings.
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "tools/serving/designer.h"

namespace braid::tools::serving_figures {
namespace {

using namespace shown;  // the metrics by name

constexpr const char* kQwen = "Qwen2.5-32B";
constexpr const char* kGpu = "GH200";

// What the paper says of one variable: `metric` is larger at x = `more_at` than at `less_at`, in
// each panel of a figure by it, at the higher of its loads.
void claim_in_each_panel(Figure& figure, const std::string& words, const Shown& metric,
                         double more_at, double less_at) {
  for (size_t at = 0; at < figure.panels.size(); ++at) {
    const std::string& load = figure.panels[at].series.back().name;
    const std::string& title = figure.panels[at].title;
    const std::string arm = title.substr(0, title.find(" (knee"));
    Claim claim{fmt::format("{} [{}]", words, arm), at, load, load, metric};
    claim.between = {more_at, less_at};
    figure.claims.push_back(claim);
  }
}

// What the paper says of its largest gain, beside the largest of `paper (c2c)` over any policy that
// is not RotaSched, at any load of any panel.
Finding largest_gain(const Figure& figure, const Laboratory& laboratory, const std::string& words,
                     const Shown& metric) {
  const bool is_share = std::string_view(metric.unit) == "%";
  double most = -std::numeric_limits<double>::infinity();
  std::string where;
  for (const Panel& panel : figure.panels) {
    const auto find = [](const Series& series) { return series.name == "paper (c2c)"; };
    const auto ours = std::find_if(panel.series.begin(), panel.series.end(), find);
    for (const Series& series : panel.series) {
      if (!is_baseline(series.name)) continue;
      for (size_t at = 0; at < panel.x.size(); ++at) {
        const double more = estimate(by_seed(laboratory.results(ours->cases[at]), metric.of)).mean;
        const double less = estimate(by_seed(laboratory.results(series.cases[at]), metric.of)).mean;
        const double gain = is_share ? more - less : more / less - 1;
        if (!(gain > most)) continue;
        most = gain;
        where =
            fmt::format("over {} at {:.2f} of the knee [{}]: {:.4g} and {:.4g} {}", series.name,
                        panel.x[at], panel.title.substr(0, panel.title.find(" (knee")),
                        is_share ? 100 * more : more, is_share ? 100 * less : less, metric.unit);
      }
    }
  }
  return {words, fmt::format("up to {:.1f} {}", 100 * most, is_share ? "points" : "%"), where};
}

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
  const char* words =
      "increasing swap bandwidth beyond the PCIe Gen5x16 uni-directional limit significantly "
      "reduces ";
  claim_in_each_panel(figure, words + std::string("TTFT"), kTtftP99, 50, 400);
  claim_in_each_panel(figure, words + std::string("TBT"), kTbtP99, 50, 400);
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
           at, "paper (c2c)", "", kTtft, true, 1.05});
      figure.claims.push_back(
          {"maintains TBT SLO attainment superior or comparable to baselines, "
           "within 3 points" +
               where,
           at, "paper (c2c)", "", kTbtTokens, true, 1.05, 0.03});
      figure.claims.push_back({"the same by the means of requests" + where, at, "paper (c2c)", "",
                               kTbtMeans, true, 1.05, 0.03});
      figure.claims.push_back({"among baselines, LTR achieves the best TTFT SLO attainment" + where,
                               at, "ltr-like", "", kTtft, true, 1.05});
      for (const char* other : {"fcfs_recompute (vLLM)", "lightllm-like"})
        figure.claims.push_back({"but significantly sacrifices TBT" + where, at, other, "ltr-like",
                                 kTbtTokens, true, 1.05});
    }
  }
  BRAID_TRY(designer.run(figure));
  figure.findings = {largest_gain(figure, designer.laboratory(),
                                  "TTFT SLO attainment rates up to 74.7 % higher (abstract)",
                                  kTtft)};
  return figure;
}

Result<Figure> figure_17(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, kGpu, designer.chats()));
  Figure figure{.title = "Ablation: RotaSched with and without DuplexKV",
                .setting = words_of(base)};
  Arm low = paper_on("c2c-naive"), high = paper_on("c2c-naive");
  low.name = "paper, w/o DuplexKV (L, 300 blocks)";
  low.parameters.transfer_blocks = 300;
  high.name = "paper, w/o DuplexKV (H, 2400 blocks)";
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
  BRAID_LET(figure,
            parameter_figure(designer, "alpha, with beta_B = beta_F = 0", "alpha",
                             {1, 2, 3, 4, 6, 8}, {.alpha = 1, .beta_tbt = 0, .beta_ttft = 0},
                             [](Case& one, double alpha) {
                               one.parameters.lag.alpha = alpha;
                               return Status();
                             },
                             {kTtft, kTbtTokens}));
  claim_in_each_panel(figure, "larger alpha yields better TBT SLO attainment", kTbtTokens, 8, 1);
  claim_in_each_panel(figure, "at the cost of lower TTFT attainment", kTtft, 1, 8);
  claim_in_each_panel(figure, "beyond 3 it significantly harms TTFT", kTtft, 3, 8);
  return figure;
}

Result<Figure> figure_19(Designer& designer) {
  BRAID_LET(figure,
            parameter_figure(designer, "beta_F, with alpha = 1 and beta_B = 0", "beta_F",
                             {0, 0.5, 1, 2, 3, 4}, {.alpha = 1, .beta_tbt = 0, .beta_ttft = 0},
                             [](Case& one, double beta) {
                               one.parameters.lag.beta_ttft = beta;
                               return Status();
                             },
                             {kTtftP99, kTbtP99}));
  claim_in_each_panel(figure, "increasing beta_F leads to worse P99 TTFT", kTtftP99, 4, 0);
  claim_in_each_panel(figure, "for beta_F >= 2 P99 TTFT sharply increases", kTtftP99, 4, 2);
  return figure;
}

Result<Figure> figure_20(Designer& designer) {
  BRAID_LET(figure, parameter_figure(designer, "beta_B, with alpha = 1 and beta_F = 0", "beta_B",
                                     {-50, -20, -5, 0, 5, 20, 50},
                                     {.alpha = 1, .beta_tbt = 0, .beta_ttft = 0},
                                     [](Case& one, double beta) {
                                       one.parameters.lag.beta_tbt = beta;
                                       return Status();
                                     },
                                     {kTtftP99, kTbtP99}));
  claim_in_each_panel(figure, "larger beta_B worsens P99 TBT", kTbtP99, 50, -50);
  claim_in_each_panel(figure, "beta_B < 0 is best for the tail of TBT", kTbtP99, 0, -50);
  claim_in_each_panel(figure, "at the cost of higher tails of TTFT", kTtftP99, -50, 0);
  return figure;
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
  claim_in_each_panel(figure, "a larger B_xfer significantly reduces P99 TTFT", kTtftP99, 150,
                      4800);
  claim_in_each_panel(figure, "and P99 TBT", kTbtP99, 150, 4800);
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
  BRAID_TRY(designer.run(figure));
  figure.findings = {largest_gain(figure, designer.laboratory(),
                                  "up to 29.2 % more throughput at high request rates",
                                  kThroughput)};
  return figure;
}

// Means over seeds, with their intervals, of the points that every run has.
template <typename Size, typename Point>
std::vector<CurvePoint> mean_curve(const Results& results, const Size& size, const Point& point) {
  std::vector<CurvePoint> curve;
  for (size_t index = 0;; ++index) {
    std::vector<double> x, y;
    for (const std::vector<RunResult>& gpus : results) {
      if (index >= size(gpus.front())) return curve;
      const auto [at, value] = point(gpus.front(), index);
      x.push_back(at);
      y.push_back(value);
    }
    const Estimate across = estimate(x), up = estimate(y);
    curve.push_back({across.mean, up.mean, across.half_width, up.half_width});
  }
}

// By the second, of one value of the samples.
template <typename Value>
Curve curve_over_time(const Series& series, const Results& results, const Value& value) {
  const auto size = [](const RunResult& run) { return run.record.timeline.size(); };
  return {series.name, mean_curve(results, size, [&](const RunResult& run, size_t index) {
            const serving::Sample& sample = run.record.timeline[index];
            return std::pair(static_cast<double>(sample.at_us) * 1e-6, value(sample));
          })};
}

Result<Figure> figure_23(Designer& designer) {
  constexpr double kLoad = 1.2;
  BRAID_LET(base, designer.base(kQwen, kGpu, designer.chats()));
  Figure figure{
      .title = "FCFS and SJF: KV cache in use, requests waiting",
      .setting = words_of(base) +
                 "; the curves are means over seeds with 95 % intervals, at 1.2 of the knee"};
  BRAID_LET(panel, designer.by_load("FCFS and SJF", base, {vllm(), plain("sjf_oracle", "pcie5")},
                                    {kTtft}, {0.7, kLoad}));
  figure.panels = {panel};
  for (const Series& series : panel.series) {
    Claim claim{series.name +
                    " fails to prevent TTFT SLO violations under memory pressure: it "
                    "loses 10 points at least",
                0, series.name, series.name, kTtft};
    claim.margin = -0.10;
    claim.between = {0.7, kLoad};
    figure.claims.push_back(claim);
  }
  BRAID_TRY(designer.run(figure));
  figure.curves = {{"KV cache in use", "s", "%", {}}, {"requests waiting", "s", "", {}}};
  for (const Series& series : panel.series) {
    const Results& results = designer.laboratory().results(series.cases.back());
    figure.curves[0].curves.push_back(curve_over_time(
        series, results, [](const serving::Sample& sample) { return 100 * sample.kv_share; }));
    figure.curves[1].curves.push_back(curve_over_time(
        series, results,
        [](const serving::Sample& sample) { return static_cast<double>(sample.waiting); }));
  }
  return figure;
}

Result<Figure> figure_24(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, kGpu, designer.chats()));
  const Arm lightllm = plain("lightllm-like", "c2c");
  Figure figure{
      .title = "Distribution of TBT",
      .setting = words_of(base) +
                 "; the curves are means of each quantile over seeds, with 95 % intervals"};
  BRAID_LET(panel, designer.by_load("TBT", base, {lightllm, paper_on("c2c"), braid_on("c2c")},
                                    {kTbtTokens, kTbtP99}, {0.95, 1.15, 1.5}));
  figure.panels = {panel};
  for (const double load : {0.95, 1.15}) {
    Claim claim{load < 1 ? "the TBT of LightLLM shows almost no changes when the request rate "
                           "increases: within 3 points of that below the knee"
                         : "its TBT attainment stabilizes: within 3 points from 1.15 on",
                0, lightllm.name, lightllm.name, kTbtTokens};
    claim.margin = 0.03;
    claim.between = {1.5, load};
    figure.claims.push_back(claim);
  }
  BRAID_TRY(designer.run(figure));
  for (const Series& series : panel.series) {
    CurvePanel drawn{series.name, "TBT, ms", "% of tokens", {}};
    for (size_t at = 0; at < panel.x.size(); ++at) {
      const auto point = [](const RunResult& run, size_t index) {
        const size_t quantile = 4 + 5 * index;
        return std::pair(run.gap_quantiles_ms[quantile], static_cast<double>(quantile + 1) * 0.1);
      };
      const auto size = [](const RunResult& run) {
        return std::min<size_t>(run.gap_quantiles_ms.size(), 990) / 5;
      };
      drawn.curves.push_back(
          {fmt::format("{:.2f} of the knee", panel.x[at]),
           mean_curve(designer.laboratory().results(series.cases[at]), size, point)});
    }
    figure.curves.push_back(drawn);
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
