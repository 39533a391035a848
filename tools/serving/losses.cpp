#include "tools/serving/losses.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "tools/serving/figures.h"

namespace braid::tools::serving_figures {
namespace {

using Json = nlohmann::ordered_json;

struct Metric {
  const char* name;  // as the JSON has it
  bool is_share;     // differences are points, else relative
  bool more_is_better;
};
constexpr std::array<Metric, 9> kMetrics{{{"TTFT attainment", true, true},
                                          {"TBT attainment, tokens", true, true},
                                          {"TBT attainment, request means", true, true},
                                          {"TBT attainment, longest gap", true, true},
                                          {"P99 TTFT", false, false},
                                          {"P99 TBT, tokens", false, false},
                                          {"P99 longest gap", false, false},
                                          {"throughput", false, true},
                                          {"goodput", false, true}}};
constexpr double kEqual = 1e-12;  // what rounding leaves of equal values is no loss

// "braid (braid4)": by `link`, of either preset. With other words after its name it is a preset
// with something changed, which is neither judged nor a rival.
bool is_rota_sched(const std::string& name) {
  return name.starts_with("braid (") || name.starts_with("paper (");
}
std::string by_another_link(std::string name, const std::string& from, const std::string& to) {
  const size_t at = name.find("(" + from + ")");
  return at == std::string::npos ? std::string() : name.replace(at + 1, from.size(), to);
}

const Json* find_series(const Json& panel, const std::string& name) {
  for (const Json& series : panel.at("series"))
    if (series.at("name") == name) return &series;
  return nullptr;
}

// By seed: how much better `ours` is; paired, since seed by seed both serve the same requests.
Estimate advantage(const Json& ours, const Json& theirs, const Metric& metric) {
  const auto mine = ours.at(metric.name).get<std::vector<double>>();
  const auto other = theirs.at(metric.name).get<std::vector<double>>();
  std::vector<double> differences;
  for (size_t seed = 0; seed < std::min(mine.size(), other.size()); ++seed) {
    const double more = (mine[seed] - other[seed]) * (metric.more_is_better ? 1 : -1);
    differences.push_back(metric.is_share ? more : more / std::max(std::abs(other[seed]), 1e-12));
  }
  return estimate(differences);
}

// "1.15: -14.3 ±2.1; 1.3: ..."; empty: nowhere.
std::string places(const Json& ours, const Json& theirs, const Metric& metric) {
  std::string text;
  const Json &mine = ours.at("points"), &other = theirs.at("points");
  for (size_t at = 0; at < std::min(mine.size(), other.size()); ++at) {
    if (!mine[at].contains(metric.name) || !other[at].contains(metric.name)) continue;
    const Estimate found = advantage(mine[at], other[at], metric);
    if (!(found.mean + found.half_width < -kEqual)) continue;
    text += fmt::format(
        "{}{:g}: {:.3g} ±{:.2g}", text.empty() ? "" : "; ", mine[at].at("x").get<double>(),
        100 * found.mean * (metric.more_is_better ? 1 : -1), 100 * found.half_width);
  }
  return text;
}

std::string rows(const Json& ours, const Json& theirs) {
  std::string text;
  for (const Metric& metric : kMetrics) {
    const std::string where = places(ours, theirs, metric);
    if (where.empty()) continue;
    text += fmt::format("| {} | {} | {}, {} | {} |\n", ours.at("name").get<std::string>(),
                        theirs.at("name").get<std::string>(), metric.name,
                        metric.is_share ? "points" : "%", where);
  }
  return text;
}

// Whoever it is compared with, in this panel.
std::vector<const Json*> rivals(const Json& panel, const std::string& name) {
  std::vector<const Json*> found;
  for (const Json& series : panel.at("series"))
    if (is_baseline(series.at("name"))) found.push_back(&series);
  if (const std::string one = by_another_link(name, "braid4", "pcie5"); !one.empty())
    if (const Json* series = find_series(panel, one); series != nullptr) found.push_back(series);
  return found;
}

std::string section_of(const Json& figure) {
  std::string text;
  bool compares = false;
  if (!figure.is_object()) throw Json::other_error::create(501, "it is no object", nullptr);
  if (!figure.contains("panels")) return {};
  for (const Json& panel : figure.at("panels")) {
    std::string table;
    for (const Json& series : panel.at("series")) {
      const auto name = series.at("name").get<std::string>();
      if (!is_rota_sched(name)) continue;
      for (const Json* rival : rivals(panel, name)) {
        compares = true;
        table += rows(series, *rival);
      }
    }
    if (table.empty()) continue;
    text += fmt::format("\n{}:\n\n| who | is worse than | by | where ({}) |\n|---|---|---|---|\n{}",
                        panel.at("title").get<std::string>(), panel.at("x_name").get<std::string>(),
                        table);
  }
  if (!compares) return {};
  const std::string head = "\n### Where it loses\n\n";
  const int seeds = figure.at("seeds").get<int>();
  if (seeds < 2) return head + "It cannot be told from one seed.\n";
  if (text.empty())
    return head + "Nowhere, against another policy or one link: no 95 % interval is beyond 0.\n";
  return head +
         fmt::format(
             "RotaSched against each other policy, and four links against one: every load at which "
             "the whole 95 % interval over {} seeds says that it is worse. Differences are paired "
             "by seed.\n",
             seeds) +
         text;
}

}  // namespace

Result<std::string> losses_of(const std::string& json, const std::string& name) {
  const Json figure = Json::parse(json, nullptr, false);
  const auto refusal = [&](const std::string& why) {
    return Status::error(name + " is not the JSON of a figure" + why,
                         "Give a figure-NAME.json that braid simulate serving has written");
  };
  if (figure.is_discarded()) return refusal("");
  try {
    return section_of(figure);
  } catch (const Json::exception& wrong) {
    return refusal(std::string(": ") + wrong.what());
  }
}

}  // namespace braid::tools::serving_figures
