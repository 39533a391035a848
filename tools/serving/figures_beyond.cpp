// What the paper does not have: ordinary servers, and questions about the policies.
#include <fmt/core.h>

#include "base/try.h"
#include "tools/serving/designer.h"

namespace braid::tools::serving_figures {
namespace {

using namespace shown;  // the metrics by name

constexpr const char* kFcfs = "fcfs_recompute (vLLM)";
constexpr const char* kQwen = "Qwen2.5-32B";
// In units of the knee.
constexpr double kBelowKnee = 0.99;

std::vector<Shown> verdicts() {
  return {kTtft,       kTbtTokens,  kTbtMeans, kTbtLongest,
          kLongestP99, kThroughput, kGoodput,  kRotations};
}

// RotaSched by four links of an ordinary server, against FCFS and against one link.
Result<Figure> pcie(Designer& designer) {
  Figure figure{.title = "RotaSched on PCIe: one link, two, four",
                .setting = "H200, chat-like lengths, Poisson arrivals"};
  for (const char* model : {"Llama-3-8B", kQwen, "Mixtral-8x7B"}) {
    BRAID_LET(base, designer.base(model, "H200", designer.chats()));
    BRAID_LET(panel, designer.by_load(model, base,
                                      {vllm(), braid_on("pcie5"), braid_on("braid2"),
                                       braid_on("braid4"), paper_on("pcie5"), paper_on("braid4")},
                                      verdicts()));
    const size_t at = figure.panels.size();
    figure.panels.push_back(panel);
    const std::string where = fmt::format(" [{}]", model);
    const auto expect = [&](const char* words, const char* better, const char* worse,
                            const Shown& metric, double margin) {
      figure.claims.push_back(
          {words + where, at, better, worse, metric, true, 0, margin, 0, kFcfs});
    };
    const char *four = "braid (braid4)", *one = "braid (pcie5)", *fcfs = kFcfs;
    expect(
        "where the TTFT attainment of FCFS first falls below 90 %, RotaSched by 4 links has a "
        "higher TTFT attainment than FCFS with "
        "recomputation, by 15 points",
        four, fcfs, kTtft, -0.15);
    expect("at TBT attainment (tokens) within 3 points", four, fcfs, kTbtTokens, 0.03);
    expect("and throughput of at least 0.95", four, fcfs, kThroughput, 0.05);
    expect("its P99 longest gap is at most 0.75 of that by one link", one, four, kLongestP99,
           -1.0 / 3);
    for (const Shown& metric : {kTtft, kTbtTokens, kTbtLongest, kThroughput}) {
      Claim claim{"below the knee, no policy differs from FCFS by more than 2 %" + where, at, "",
                  fcfs, metric};
      claim.margin = 0.02;
      claim.until = kBelowKnee;
      claim.is_equality = true;
      figure.claims.push_back(claim);
    }
  }
  return figure;
}

Result<Figure> bandwidth(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, "H200", designer.chats()));
  BRAID_LET(knee, designer.knee_rps(base));
  Figure figure{.title = "Links, from PCIe 4.0 to NVLink-C2C", .setting = words_of(base)};
  const std::vector<const char*> links = {"pcie4", "pcie5", "braid2", "braid4", "c2c"};
  for (const bool is_paper : {true, false}) {
    Panel panel{
        fmt::format("{} (knee of FCFS: {:.2f} requests/s)", is_paper ? "paper" : "braid", knee),
        "link",
        {},
        {},
        {},
        verdicts()};
    for (size_t index = 0; index < links.size(); ++index) {
      panel.x.push_back(static_cast<double>(index));
      panel.x_labels.emplace_back(links[index]);
    }
    for (const double load : {1.0, 1.15, 1.3}) {
      Series series{fmt::format("{:.2f} of the knee", load), {}};
      for (const char* link : links) {
        BRAID_LET(one, designer.with(base, is_paper ? paper_on(link) : braid_on(link)));
        one.engine.host = {0, 0, 0, "not what limits one GPU"};
        one.arrivals.rate_rps = load * knee;
        series.cases.push_back(one);
      }
      panel.series.push_back(series);
    }
    figure.panels.push_back(panel);
  }
  return figure;
}

Result<Figure> gpus(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, "H200", designer.chats()));
  Figure figure{
      .title = "One to four GPUs that rotate on one host",
      .setting = words_of(base) +
                 "; of the first GPU, whose requests are the same beside any number of others"};
  for (const Arm& arm : {braid_on("pcie5"), braid_on("braid4"), paper_on("braid4")}) {
    BRAID_LET(panel, designer.by_parameter(arm.name, base, arm, {1.05, 1.3}, "GPUs", {1, 2, 3, 4},
                                           [](Case& one, double count) {
                                             one.gpus = static_cast<int>(count);
                                             return Status();
                                           },
                                           {kTtft, kTbtTokens, kLongestP99, kStalls}));
    figure.panels.push_back(panel);
  }
  return figure;
}

Result<Figure> budget(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, "H200", designer.chats()));
  Figure figure{.title = "Tokens a step",
                .setting = words_of(base) + " at the knee; never more requests run than tokens"};
  for (const Arm& arm : {vllm(), paper_on("braid4"), braid_on("braid4")}) {
    BRAID_LET(panel,
              designer.by_parameter(arm.name, base, arm, {0.85, 1.05}, "tokens a step",
                                    {512, 1024, 2048, 4096, 8192},
                                    [](Case& one, double tokens) {
                                      one.engine.token_budget = static_cast<uint32_t>(tokens);
                                      return Status();
                                    },
                                    {kTtft, kTbtTokens, kTbtMeans, kTbtLongest, kThroughput}));
    figure.panels.push_back(panel);
  }
  return figure;
}

// Each policy as a line over loads: TTFT attainment against each reading of TBT.
Result<Figure> frontier(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, "H200", designer.chats()));
  Figure figure{.title = "TTFT x TBT of every policy", .setting = words_of(base)};
  const std::vector<Arm> arms = {vllm(),
                                 plain("swapped_first", "braid4"),
                                 plain("waiting_first", "braid4"),
                                 plain("sjf_oracle", "braid4"),
                                 plain("edf", "braid4"),
                                 plain("slo_classes", "braid4"),
                                 plain("lightllm-like", "braid4"),
                                 plain("ltr-like", "braid4"),
                                 plain("neo-like", "braid4"),
                                 paper_on("braid4"),
                                 braid_on("braid4")};
  BRAID_LET(panel, designer.by_load("all policies", base, arms, verdicts()));
  figure.panels = {panel};
  for (const Shown& tbt : {kTbtTokens, kTbtMeans, kTbtLongest})
    figure.scatters.push_back({0, kTtft, tbt});
  return figure;
}

// What each of the mends of `braid` is worth.
Result<Figure> mends(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, "H200", designer.chats()));
  Figure figure{.title = "From `paper` to `braid`", .setting = words_of(base)};
  Arm polled = paper_on("braid4"), always = braid_on("braid4"), waits = braid_on("braid4");
  polled.name = "paper, steps do not wait for copies";
  polled.steps_wait_for_copies = false;
  always.name = "braid, also for requests in time";
  always.parameters.late_only = false;
  waits.name = "braid, steps wait for copies";
  waits.steps_wait_for_copies = true;
  BRAID_LET(panel, designer.by_load("presets", base,
                                    {paper_on("braid4"), polled, always, waits, braid_on("braid4")},
                                    verdicts()));
  figure.panels = {panel};
  return figure;
}

Result<Figure> classes(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, "H200", designer.chats()));
  base.arrivals.batch_share = 0.5;
  Figure figure{.title = "Two classes of requests",
                .setting = words_of(base) + "; half of the requests have ten times the objectives"};
  BRAID_LET(panel, designer.by_load("classes", base,
                                    {vllm(), plain("slo_classes", "braid4"), plain("edf", "braid4"),
                                     paper_on("braid4"), braid_on("braid4")},
                                    verdicts()));
  figure.panels = {panel};
  return figure;
}

Result<Figure> trace(Designer& designer) {
  BRAID_LET(base, designer.base(kQwen, "H200", designer.chats()));
  Figure figure{.title = "The trace", .setting = "none was given: --trace FILE"};
  if (!designer.setting().trace) return figure;  // one of all figures: the others need none
  base.trace = designer.setting().trace;
  base.lengths = nullptr;
  figure.setting = words_of(base) + "; each seed is another stretch of it";
  BRAID_LET(panel, designer.by_load(
                       "trace", base,
                       {vllm(), plain("swapped_first", "braid4"), plain("waiting_first", "braid4"),
                        paper_on("braid4"), braid_on("pcie5"), braid_on("braid4")},
                       verdicts()));
  figure.panels = {panel};
  return figure;
}

}  // namespace

std::vector<Maker> figures_beyond_it() {
  return {
      {{"pcie", "RotaSched by one link, two and four, three models"}, pcie},
      {{"bandwidth", "links from PCIe 4.0 to NVLink-C2C"}, bandwidth},
      {{"gpus", "one to four GPUs that rotate on one host"}, gpus},
      {{"budget", "tokens a step"}, budget},
      {{"frontier", "TTFT x TBT of every policy"}, frontier},
      {{"mends", "what the mends of `braid` are worth"}, mends},
      {{"classes", "two classes of requests"}, classes},
      {{"trace", "the trace of --trace, stretched"}, trace},
  };
}

}  // namespace braid::tools::serving_figures
