// The figures of SuperInfer's evaluation and motivation as experiments or measurements, and others
// that it does not have. A figure is panels; a panel is series of cases over one variable, of which
// metrics are drawn.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "serving/cost/calibration.h"
#include "serving/cost/copy_times.h"
#include "tools/serving/experiment.h"

namespace braid::tools::serving_figures {

struct Shown {
  const char* name;
  const char* unit;  ///< "%" metrics are shares, shown times 100
  double (*of)(const Metrics&);
};

struct Series {
  std::string name;
  std::vector<Case> cases;  ///< one for each x
};

/// Whether a series is of a policy that is not RotaSched.
inline bool is_baseline(const std::string& series) {
  return !series.starts_with("braid") && !series.starts_with("paper");
}

struct Panel {
  std::string title;
  std::string x_name;
  std::vector<double> x;
  std::vector<std::string> x_labels{};  ///< what stands there instead of the number
  std::vector<Series> series;
  std::vector<Shown> metrics;
};

/// "`better` has more of `metric` than `worse`", looked at in one panel: at x between `from` and
/// `until`, or as the last two fields say. Without `worse`: than every baseline of the panel.
struct Claim {
  std::string words;  ///< the paper's
  size_t panel;
  std::string better, worse;
  Shown metric;
  bool more = true;  ///< false: less
  double from = 0;
  double margin = 0;  ///< within this it is no worse: for "comparable"
  double until = 1e9;
  /// A series: looked at only at the first x where its TTFT attainment is below that of the knee.
  std::string fails_first{};
  /// No series differs from `worse` by more than the margin, either way, at any of these x.
  /// `better` says nothing then.
  bool is_equality = false;
  /// `better` at the first x, `worse` at the second.
  std::optional<std::pair<double, double>> between{};
};

/// Curves over time, or distributions. Half widths are of 95 % intervals over seeds; 0: of one run.
struct CurvePoint {
  double x, y;
  double x_half_width = 0, y_half_width = 0;
};
struct Curve {
  std::string name;
  std::vector<CurvePoint> points;
};
struct CurvePanel {
  std::string title, x_name, y_name;
  std::vector<Curve> curves;
  std::vector<std::string> x_labels{};  ///< what stands at x = 0, 1, ..; empty: the numbers
};

/// Each series of a panel as one line over all its x.
struct Scatter {
  size_t panel;
  Shown across, up;
};

/// What a measurement says of the paper's words.
struct Finding {
  std::string words, verdict, figures;
};

enum class Kind { kSimulated, kMeasured };

struct Figure {
  std::string name{};
  std::string title{};
  std::string setting{};  ///< model, lengths, hardware, in words
  Kind kind = Kind::kSimulated;
  std::vector<Panel> panels{};
  std::vector<CurvePanel> curves{};
  std::vector<Scatter> scatters{};
  std::vector<Claim> claims{};
  std::vector<Finding> findings{};
};

/// What the user chose.
struct Setting {
  serving::Calibration calibration;
  serving::CopyTimes copies;
  double seconds = 300;
  uint32_t token_budget = 1024;
  uint32_t max_running = 1024;
  serving::Slo slo{};
  std::shared_ptr<const Trace> trace;      ///< null: none was given
  std::shared_ptr<const Lengths> lengths;  ///< replace the synthetic ones
};

struct FigureName {
  const char* name;
  const char* what;
};
/// In the order in which `all` makes them.
const std::vector<FigureName>& figure_names();

/// Designs the figure, for which it finds knees, and runs it.
Result<Figure> make_figure(const std::string& name, const Setting& setting, Laboratory& laboratory);

}  // namespace braid::tools::serving_figures
