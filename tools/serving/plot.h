// Small line charts, many in one SVG.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace braid::tools::serving_figures {

struct PlotPoint {
  double x, y;
  double half_width = 0;    ///< of a bar through the point; NaN or 0: none
  double x_half_width = 0;  ///< the same, from left to right
};
struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;
};
struct Plot {
  std::string title, x_name, y_name;
  std::vector<PlotSeries> series;
  std::vector<std::pair<double, std::string>> x_ticks{};  ///< empty: chosen
};

/// The plots of each row side by side, with one legend for the row.
std::string draw(const std::string& title, const std::vector<std::vector<Plot>>& rows);

}  // namespace braid::tools::serving_figures
