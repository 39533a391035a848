// Whether a claim appears in the runs of its figure.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/serving/report.h"
#include "tools/serving/words.h"

namespace braid::tools::serving_figures {
namespace {

const Series* find_series(const Panel& panel, const std::string& name) {
  for (const Series& series : panel.series)
    if (series.name == name) return &series;
  return nullptr;
}

// Where the two sides of a claim are compared, as places in the panel's x.
struct Places {
  size_t better, worse;
};

// The first x at which FCFS, or whoever it is, serves fewer requests in time than at the knee.
std::vector<Places> where_it_fails(const Panel& panel, const Series& series,
                                   const Laboratory& laboratory) {
  const auto attainment = [](const Metrics& metrics) { return metrics.ttft_attainment; };
  for (size_t at = 0; at < panel.x.size(); ++at)
    if (estimate(by_seed(laboratory.results(series.cases[at]), attainment)).mean < kKneeAttainment)
      return {{at, at}};
  return {};
}

std::vector<Places> places_of(const Panel& panel, const Claim& claim,
                              const Laboratory& laboratory) {
  if (!claim.fails_first.empty())
    return where_it_fails(panel, *find_series(panel, claim.fails_first), laboratory);
  std::vector<Places> places;
  for (size_t better = 0; better < panel.x.size(); ++better)
    for (size_t worse = 0; worse < panel.x.size(); ++worse) {
      const std::pair<double, double> x = {panel.x[better], panel.x[worse]};
      const bool is_both = better == worse && x.first >= claim.from && x.first <= claim.until;
      if (claim.between ? x == *claim.between : is_both) places.push_back({better, worse});
    }
  return places;
}

// By seed: the mean difference over these places, relative unless the metric is a share.
std::vector<double> differences(const Panel& panel, const Claim& claim,
                                const std::vector<Places>& places, const Laboratory& laboratory) {
  const Series* better = find_series(panel, claim.better);
  const Series* worse = find_series(panel, claim.worse);
  const bool is_share = scale_of(claim.metric) > 1;
  std::vector<double> sums(static_cast<size_t>(laboratory.seeds()));
  for (const Places& at : places) {
    const auto more = by_seed(laboratory.results(better->cases[at.better]), claim.metric.of);
    const auto less = by_seed(laboratory.results(worse->cases[at.worse]), claim.metric.of);
    for (size_t seed = 0; seed < sums.size(); ++seed) {
      const double difference = (more[seed] - less[seed]) * (claim.more ? 1 : -1);
      sums[seed] += is_share ? difference : difference / std::max(std::abs(less[seed]), 1e-12);
    }
  }
  for (double& sum : sums) sum /= static_cast<double>(places.size());
  return sums;
}

std::string label_of(const Panel& panel, size_t at) {
  return panel.x_labels.empty() ? number(panel.x[at]) : panel.x_labels[at];
}

// "1.30 of the knee at 50 - at 400", or "braid (braid4) - fcfs_recompute (vLLM) at 1.05 (17.6/s)"
std::string words_of(const Panel& panel, const Claim& claim, const Places& at) {
  const char* than = claim.more ? "-" : "under";
  if (claim.between)
    return fmt::format("{} at {} {} at {}", claim.better, label_of(panel, at.better), than,
                       label_of(panel, at.worse));
  const std::string both = fmt::format("{} {} {}", claim.better, than, claim.worse);
  return claim.fails_first.empty() ? both
                                   : fmt::format("{} at {}", both, label_of(panel, at.better));
}

// Against each baseline; what is told is the least that can be said against any.
Judged judge_against_all(const Figure& figure, const Claim& claim, const Laboratory& laboratory) {
  std::optional<Judged> least;
  const auto rank = [](const Judged& judged) {
    return judged.verdict == "appears" ? 2 : judged.verdict == "cannot be told" ? 1 : 0;
  };
  for (const Series& series : figure.panels[claim.panel].series) {
    if (series.name == claim.better || !is_baseline(series.name)) continue;
    Claim one = claim;
    one.worse = series.name;
    const Judged judged = judge(figure, one, laboratory);
    if (!least || std::pair(rank(judged), judged.difference.mean) <
                      std::pair(rank(*least), least->difference.mean))
      least = judged;
  }
  return least.value_or(Judged{claim.words, "cannot be told", "there is no baseline", {}});
}

// By the series and the x that differ most.
Judged judge_equality(const Panel& panel, const Claim& claim, const Laboratory& laboratory) {
  Judged judged{claim.words, "cannot be told", "none is where the claim looks", {}};
  bool is_beyond = false, is_within = true;
  double most = -1;
  for (const Series& series : panel.series) {
    if (series.name == claim.worse) continue;
    Claim one = claim;
    one.better = series.name;
    for (const Places& at : places_of(panel, one, laboratory)) {
      const Estimate difference = estimate(differences(panel, one, {at}, laboratory));
      const double size = std::abs(difference.mean);
      is_beyond = is_beyond || size - difference.half_width > claim.margin;
      // With one seed the interval is unknown, and nothing can be told.
      is_within = is_within && size + difference.half_width <= claim.margin;
      if (size <= most) continue;
      most = size;
      judged.difference = {-size, difference.half_width};
      judged.figures =
          fmt::format("{}: {} at {}, {} {}", claim.metric.name, words_of(panel, one, at),
                      label_of(panel, at.better), with_interval(difference, 100),
                      scale_of(claim.metric) > 1 ? "points" : "%");
    }
  }
  if (most >= 0 && is_within) judged.verdict = "appears";
  if (is_beyond) judged.verdict = "**does not appear**";
  return judged;
}

}  // namespace

Judged judge(const Figure& figure, const Claim& claim, const Laboratory& laboratory) {
  const Panel& panel = figure.panels[claim.panel];
  if (claim.worse.empty()) return judge_against_all(figure, claim, laboratory);
  if (claim.is_equality) return judge_equality(panel, claim, laboratory);
  const std::vector<Places> places = places_of(panel, claim, laboratory);
  if (places.empty())
    return {claim.words,
            "cannot be told",
            fmt::format("no x of the figure: {}", claim.fails_first.empty()
                                                      ? "none is where the claim looks"
                                                      : claim.fails_first + " never falls so low"),
            {0, std::numeric_limits<double>::quiet_NaN()}};
  const Estimate difference = estimate(differences(panel, claim, places, laboratory));
  const double half = difference.half_width;
  Judged judged{claim.words, "cannot be told", "", difference};
  // With one seed the interval is unknown, and nothing can be told.
  if (difference.mean - half + claim.margin > 0) judged.verdict = "appears";
  if (difference.mean + half + claim.margin <= 0) judged.verdict = "**does not appear**";
  const bool is_share = scale_of(claim.metric) > 1;
  judged.figures =
      fmt::format("{}: {}, {} {}", claim.metric.name, words_of(panel, claim, places.front()),
                  with_interval(difference, 100), is_share ? "points" : "%");
  return judged;
}

}  // namespace braid::tools::serving_figures
