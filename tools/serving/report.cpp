#include "tools/serving/report.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "serving/hardware.h"
#include "tools/serving/plot.h"
#include "tools/serving/words.h"

namespace braid::tools::serving_figures {
namespace {

using Json = nlohmann::ordered_json;

std::string axis_of(const Shown& shown) {
  return *shown.unit == '\0' ? shown.name : fmt::format("{}, {}", shown.name, shown.unit);
}

const char* kind_of(const Figure& figure) {
  return figure.kind == Kind::kMeasured ? "measured" : "simulated";
}

Json json_of(const Curve& curve) {
  Json points = Json::array();
  for (const CurvePoint& point : curve.points) {
    Json one{{"x", point.x}, {"y", point.y}};
    if (point.x_half_width > 0) one["x_half_width"] = point.x_half_width;
    if (point.y_half_width > 0) one["y_half_width"] = point.y_half_width;
    points.push_back(one);
  }
  return {{"name", curve.name}, {"points", points}};
}

}  // namespace

std::string json_of(const Figure& figure, const Setting& setting, const Laboratory& laboratory) {
  Json document;
  document["figure"] = figure.name;
  document["title"] = figure.title;
  document["setting"] = figure.setting;
  document["kind"] = kind_of(figure);
  document["step_times"] = setting.calibration.source;
  document["copies"] = setting.copies.source;
  document["seeds"] = laboratory.seeds();
  document["seconds"] = setting.seconds;
  for (const Panel& panel : figure.panels) {
    Json drawn{{"title", panel.title}, {"x_name", panel.x_name}, {"series", Json::array()}};
    for (const Series& series : panel.series) {
      Json points = Json::array();
      for (size_t at = 0; at < panel.x.size(); ++at) {
        Json point{{"x", panel.x[at]}, {"requests_per_s", series.cases[at].arrivals.rate_rps}};
        if (!panel.x_labels.empty()) point["label"] = panel.x_labels[at];
        for (const Shown& shown : panel.metrics)
          point[shown.name] = by_seed(laboratory.results(series.cases[at]), shown.of);
        points.push_back(point);
      }
      drawn["series"].push_back({{"name", series.name}, {"points", points}});
    }
    document["panels"].push_back(drawn);
  }
  for (const CurvePanel& panel : figure.curves) {
    Json drawn{{"title", panel.title}, {"x", panel.x_name}, {"y", panel.y_name}};
    if (!panel.x_labels.empty()) drawn["labels"] = panel.x_labels;
    for (const Curve& curve : panel.curves) drawn["curves"].push_back(json_of(curve));
    document["curves"].push_back(drawn);
  }
  for (const Claim& claim : figure.claims) {
    const Judged judged = judge(figure, claim, laboratory);
    document["claims"].push_back({{"words", judged.words},
                                  {"verdict", judged.verdict},
                                  {"figures", judged.figures},
                                  {"difference", judged.difference.mean},
                                  {"half_width", judged.difference.half_width},
                                  {"margin", claim.margin}});
  }
  for (const Finding& finding : figure.findings)
    document["findings"].push_back(
        {{"words", finding.words}, {"verdict", finding.verdict}, {"figures", finding.figures}});
  return document.dump(1) + "\n";
}

namespace {

PlotSeries drawn_series(const Panel& panel, const Series& series, const Shown& shown,
                        const Laboratory& laboratory) {
  PlotSeries drawn{series.name, {}};
  const double scale = scale_of(shown);
  for (size_t at = 0; at < panel.x.size(); ++at) {
    const Estimate value = estimate(by_seed(laboratory.results(series.cases[at]), shown.of));
    drawn.points.push_back({panel.x[at], value.mean * scale, value.half_width * scale});
  }
  return drawn;
}

/// One for each metric.
std::vector<Plot> plots_of(const Panel& panel, const Laboratory& laboratory) {
  std::vector<Plot> row;
  for (const Shown& shown : panel.metrics) {
    Plot plot{panel.title, panel.x_name, axis_of(shown), {}};
    const bool has_names = panel.x_name == "link";
    for (size_t at = 0; has_names && at < panel.x.size(); ++at)
      plot.x_ticks.emplace_back(panel.x[at], panel.x_labels[at]);
    for (const Series& series : panel.series)
      plot.series.push_back(drawn_series(panel, series, shown, laboratory));
    row.push_back(plot);
  }
  return row;
}

Plot plot_of(const Scatter& scatter, const Panel& panel, const Laboratory& laboratory) {
  Plot plot{fmt::format("{}: {:g} to {:g}", panel.x_name, panel.x.front(), panel.x.back()),
            axis_of(scatter.across),
            axis_of(scatter.up),
            {}};
  for (const Series& series : panel.series) {
    PlotSeries drawn{series.name, {}};
    for (const Case& one : series.cases) {
      const Results& results = laboratory.results(one);
      drawn.points.push_back({estimate(by_seed(results, scatter.across.of)).mean * 100,
                              estimate(by_seed(results, scatter.up.of)).mean * 100});
    }
    plot.series.push_back(drawn);
  }
  return plot;
}

Plot plot_of(const CurvePanel& panel) {
  Plot plot{panel.title, panel.x_name, panel.y_name, {}};
  for (size_t at = 0; at < panel.x_labels.size(); ++at)
    plot.x_ticks.emplace_back(static_cast<double>(at), panel.x_labels[at]);
  for (const Curve& curve : panel.curves) {
    PlotSeries drawn{curve.name, {}};
    for (const CurvePoint& point : curve.points)
      drawn.points.push_back({point.x, point.y, point.y_half_width, point.x_half_width});
    plot.series.push_back(drawn);
  }
  return plot;
}

}  // namespace

std::string svg_of(const Figure& figure, const Laboratory& laboratory) {
  std::vector<std::vector<Plot>> rows;
  for (const Panel& panel : figure.panels) rows.push_back(plots_of(panel, laboratory));
  std::vector<Plot> scatters;
  for (const Scatter& scatter : figure.scatters)
    scatters.push_back(plot_of(scatter, figure.panels[scatter.panel], laboratory));
  rows.push_back(scatters);
  for (const CurvePanel& panel : figure.curves) rows.push_back({plot_of(panel)});
  return draw(fmt::format("{} ({}): {}", figure.name, kind_of(figure), figure.title), rows);
}

namespace {

std::string hardware_text() {
  const EngineConfig engine{};
  std::string text;
  for (const char* name : {"H200", "GH200"}) {
    const serving::Gpu gpu = serving::find_gpu(name).value();
    text += fmt::format(
        "- GPU {}: {:g} GB ({}), of which {:g}, less {:g} GB, are for weights and KV "
        "caches (assumed)\n",
        name, gpu.hbm_bytes * 1e-9, gpu.source, engine.hbm_share, engine.activation_bytes * 1e-9);
  }
  const serving::HostMemory host = serving::pcie_host();
  text += fmt::format(
      "- host memory: {:g} GB a GPU for KV caches (SuperInfer section 5.2); beside "
      "H200s {:g} GB/s to the GPUs, {:g} from them, {:g} both ways ({})\n",
      engine.host_bytes * 1e-9, host.load_gbps, host.save_gbps, host.both_gbps, host.source);
  for (const char* name : {"pcie4", "pcie5", "braid2", "braid4", "c2c", "c2c-naive"}) {
    const serving::Link link = serving::find_link(name).value();
    text += fmt::format("- link {}: {:g} GB/s to the GPU, {:g} from it, {:g} both ways; {}\n", name,
                        link.load_gbps, link.save_gbps, link.both_gbps, link.source);
  }
  return text;
}

std::string inputs_text(const Setting& setting) {
  std::string text;
  for (const char* name : {"Llama-3-8B", "Qwen2.5-32B", "Mixtral-8x7B"})
    text += fmt::format("- model {}: {}\n", name, serving::find_model(name).value().source);
  if (setting.lengths)
    text += fmt::format("- lengths {}: {}\n", setting.lengths->name(), setting.lengths->source());
  for (const Lengths& lengths : {serving::chat_like(), serving::long_chat_like()})
    if (!setting.lengths)
      text += fmt::format("- lengths {}: {}\n", lengths.name(), lengths.source());
  const PolicyParameters policy;
  return text + fmt::format(
                    "- RotaSched, unless a figure changes it: alpha {:g}, beta_B {:g}, beta_F "
                    "{:g}, B_xfer {} blocks (SuperInfer section 5.2)\n",
                    policy.lag.alpha, policy.lag.beta_tbt, policy.lag.beta_ttft,
                    policy.transfer_blocks);
}

}  // namespace

std::string report_head(const Setting& setting, int seeds) {
  std::string text = fmt::format(
      "# Serving, simulated\n\n"
      "Every number on this page comes from a simulation, not from a server, unless its figure is "
      "said to be\nmeasured. `braid simulate serving` made it; docs/serving.md says what is "
      "simulated and what is an input.\n\n"
      "- step times: {}\n"
      "- copies of figures 4, 5 and 12 and table 1: {}\n",
      setting.calibration.source, setting.copies.source);
  text += fmt::format(
      "- median relative error of step times over the half of the grid held out: "
      "{:.1f} %\n",
      100 * setting.calibration.held_out_error);
  text += fmt::format(
      "- {} seeds, paired: every policy serves the same requests; ± is a 95 % interval by "
      "Student's t over seeds\n"
      "- {:g} s of arrivals, the first tenth of which is not counted; 60 s later the run ends, and "
      "what is not finished has missed what it waits for\n"
      "- {} tokens a step for every policy, and at most {} requests that run; TTFT within {:g} s, "
      "TBT "
      "within {:g} ms\n",
      seeds, setting.seconds, setting.token_budget, setting.max_running,
      static_cast<double>(setting.slo.ttft_us) * 1e-6,
      static_cast<double>(setting.slo.tbt_us) * 1e-3);
  return text + hardware_text() + inputs_text(setting);
}

namespace {

/// Of curves whose x have names.
std::string table_of(const CurvePanel& panel) {
  std::string text = fmt::format("\n{}: {}\n\n| {} |", panel.title, panel.y_name, panel.x_name);
  for (const Curve& curve : panel.curves) text += fmt::format(" {} |", curve.name);
  text += "\n|---|";
  for (size_t index = 0; index < panel.curves.size(); ++index) text += "---|";
  text += "\n";
  for (size_t at = 0; at < panel.x_labels.size(); ++at) {
    text += fmt::format("| {} |", panel.x_labels[at]);
    for (const Curve& curve : panel.curves)
      text += fmt::format(" {} |", number(curve.points[at].y));
    text += "\n";
  }
  return text;
}

}  // namespace

std::string report_of(const Figure& figure, const Laboratory& laboratory) {
  std::string text = fmt::format("\n## {}: {}\n\n{}\n\n![{}](figure-{}.svg)\n", figure.name,
                                 figure.title, figure.setting, figure.title, figure.name);
  if (!figure.claims.empty() || !figure.findings.empty()) {
    text += "\n| said | here | by |\n|---|---|---|\n";
    for (const Finding& finding : figure.findings)
      text += fmt::format("| {} | {} | {} |\n", finding.words, finding.verdict, finding.figures);
    for (const Claim& claim : figure.claims) {
      const Judged judged = judge(figure, claim, laboratory);
      text += fmt::format("| {} | {} | {} |\n", judged.words, judged.verdict, judged.figures);
    }
  }
  for (const Panel& panel : figure.panels)
    for (const Shown& shown : panel.metrics) {
      text += fmt::format("\n{}: {}\n\n| {} |", panel.title, axis_of(shown), panel.x_name);
      for (const Series& series : panel.series) text += fmt::format(" {} |", series.name);
      text += "\n|---|";
      for (size_t index = 0; index < panel.series.size(); ++index) text += "---|";
      text += "\n";
      for (size_t at = 0; at < panel.x.size(); ++at) {
        text += fmt::format("| {} |",
                            panel.x_labels.empty() ? number(panel.x[at]) : panel.x_labels[at]);
        for (const Series& series : panel.series)
          text += fmt::format(
              " {} |",
              with_interval(estimate(by_seed(laboratory.results(series.cases[at]), shown.of)),
                            scale_of(shown)));
        text += "\n";
      }
    }
  for (const CurvePanel& panel : figure.curves)
    if (!panel.x_labels.empty()) text += table_of(panel);
  return text;
}

}  // namespace braid::tools::serving_figures
