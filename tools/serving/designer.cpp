#include "tools/serving/designer.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/try.h"
#include "serving/policies/make_policy.h"

namespace braid::tools::serving_figures {

namespace shown {
const Shown kTtft = {"TTFT attainment", "%", [](const Metrics& m) { return m.ttft_attainment; }};
const Shown kTbtTokens = {"TBT attainment, tokens", "%",
                          [](const Metrics& m) { return m.tbt_tokens; }};
const Shown kTbtMeans = {"TBT attainment, request means", "%",
                         [](const Metrics& m) { return m.tbt_means; }};
const Shown kTbtLongest = {"TBT attainment, longest gap", "%",
                           [](const Metrics& m) { return m.tbt_longest; }};
const Shown kTtftP99 = {"P99 TTFT", "s", [](const Metrics& m) { return m.ttft_p99_s; }};
const Shown kTbtP99 = {"P99 TBT, tokens", "ms", [](const Metrics& m) { return m.tbt_p99_ms; }};
const Shown kLongestP99 = {"P99 longest gap", "ms",
                           [](const Metrics& m) { return m.longest_gap_p99_ms; }};
const Shown kThroughput = {"throughput", "tokens/s",
                           [](const Metrics& m) { return m.throughput_tps; }};
const Shown kGoodput = {"goodput", "requests/s", [](const Metrics& m) { return m.goodput_rps; }};
const Shown kRotations = {"rotations", "a request", [](const Metrics& m) { return m.rotations; }};
const Shown kRecomputes = {"recomputations", "a request",
                           [](const Metrics& m) { return m.recomputes; }};
const Shown kStalls = {"stalled", "%", [](const Metrics& m) { return m.stall_share; }};
}  // namespace shown

namespace {

const std::vector<double>& load_fractions() {
  static const std::vector<double> fractions = {0.7, 0.85, 0.95, 1.0, 1.05, 1.15, 1.3, 1.5};
  return fractions;
}

}  // namespace

Arm vllm() { return {"fcfs_recompute (vLLM)", "fcfs_recompute", "pcie5"}; }
Arm paper_on(const std::string& link) {
  return {fmt::format("paper ({})", link), "paper", link, true};
}
Arm braid_on(const std::string& link) {
  return {fmt::format("braid ({})", link), "braid", link, false};
}
Arm plain(const std::string& policy, const std::string& link) { return {policy, policy, link}; }

std::string words_of(const Case& base) {
  return fmt::format("{}, {}, {}, {} tokens a step", base.engine.model.name,
                     base.trace ? "the given trace, stretched"
                                : base.lengths->name() + " lengths, Poisson arrivals",
                     base.engine.gpu.name, base.engine.token_budget);
}

Lengths Designer::chats() const {
  return setting_.lengths ? *setting_.lengths : serving::chat_like();
}
Lengths Designer::long_chats() const {
  return setting_.lengths ? *setting_.lengths : serving::long_chat_like();
}

Result<Case> Designer::base(const std::string& model, const std::string& gpu,
                            const Lengths& lengths) const {
  Case base;
  BRAID_LET(found_model, serving::find_model(model));
  BRAID_LET(found_gpu, serving::find_gpu(gpu));
  BRAID_LET(link, serving::find_link("pcie5"));
  base.engine.model = found_model;
  base.engine.gpu = found_gpu;
  base.engine.link = link;
  base.engine.host =
      gpu == "GH200" ? serving::HostMemory{0, 0, 0, "its own for each GPU"} : serving::pcie_host();
  base.engine.constants = setting_.calibration.constants;
  base.engine.token_budget = setting_.token_budget;
  base.engine.max_running = setting_.max_running;
  base.lengths = std::make_shared<Lengths>(lengths);
  base.arrivals.seconds = setting_.seconds;
  base.arrivals.slo = setting_.slo;
  return base;
}

Result<Case> Designer::with(Case base, const Arm& arm) const {
  BRAID_LET(link, serving::find_link(arm.link));
  base.engine.link = link;
  base.engine.steps_wait_for_copies = arm.steps_wait_for_copies;
  BRAID_TRY(serving::make_policy(arm.policy, arm.parameters).status());
  base.policy = arm.policy;
  base.parameters = arm.parameters;
  return base;
}

Result<Panel> Designer::by_load(const std::string& title, const Case& base,
                                const std::vector<Arm>& arms, const std::vector<Shown>& metrics,
                                const std::vector<double>& loads) {
  BRAID_LET(knee, knee_rps(base));
  Panel panel{fmt::format("{} (knee of FCFS: {:.2f} requests/s)", title, knee),
              "load / knee of FCFS",
              loads.empty() ? load_fractions() : loads,
              {},
              {},
              metrics};
  for (const double fraction : panel.x)
    panel.x_labels.push_back(fmt::format("{:.2f} ({:.2f}/s)", fraction, fraction * knee));
  for (const Arm& arm : arms) {
    Series series{arm.name, {}};
    for (const double fraction : panel.x) {
      BRAID_LET(one, with(base, arm));
      one.arrivals.rate_rps = fraction * knee;
      series.cases.push_back(one);
    }
    panel.series.push_back(series);
  }
  return panel;
}

Result<Panel> Designer::by_parameter(const std::string& title, const Case& base, const Arm& arm,
                                     const std::vector<double>& loads, const std::string& x_name,
                                     const std::vector<double>& x, const Change& change,
                                     const std::vector<Shown>& metrics) {
  BRAID_LET(knee, knee_rps(base));
  Panel panel{
      fmt::format("{} (knee of FCFS: {:.2f} requests/s)", title, knee), x_name, x, {}, {}, metrics};
  for (const double load : loads) {
    Series series{fmt::format("{:.2f} of the knee", load), {}};
    for (const double value : x) {
      BRAID_LET(one, with(base, arm));
      one.arrivals.rate_rps = load * knee;
      BRAID_TRY(change(one, value));
      series.cases.push_back(one);
    }
    panel.series.push_back(series);
  }
  return panel;
}

Status Designer::run(const Figure& figure) {
  std::vector<Case> cases;
  for (const Panel& panel : figure.panels)
    for (const Series& series : panel.series)
      cases.insert(cases.end(), series.cases.begin(), series.cases.end());
  return laboratory_.run(cases);
}

namespace {

std::vector<Maker> all_figures() {
  std::vector<Maker> all = figures_of_copies();
  for (const auto& makers : {figures_of_the_paper(), figures_beyond_it()})
    all.insert(all.end(), makers.begin(), makers.end());
  return all;
}

}  // namespace

const std::vector<FigureName>& figure_names() {
  static const std::vector<FigureName> names = [] {
    std::vector<FigureName> all;
    for (const Maker& maker : all_figures()) all.push_back(maker.name);
    return all;
  }();
  return names;
}

Result<Figure> make_figure(const std::string& name, const Setting& setting,
                           Laboratory& laboratory) {
  Designer designer(setting, laboratory);
  std::string known;
  for (const Maker& maker : all_figures()) {
    known += (known.empty() ? "" : ", ") + std::string(maker.name.name);
    if (name != maker.name.name) continue;
    BRAID_LET(figure, maker.make(designer));
    figure.name = maker.name.name;
    BRAID_TRY(designer.run(figure));
    return figure;
  }
  return Status::error(fmt::format("there is no figure '{}'", name),
                       "Choose 'all' or one of " + known);
}

}  // namespace braid::tools::serving_figures
