#include "tools/serving/plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace braid::tools::serving_figures {
namespace {

constexpr double kCellWidth = 380, kCellHeight = 280;
constexpr double kLeft = 62, kRight = 14, kTop = 34, kBottom = 48;
constexpr size_t kMostColumns = 4;
constexpr double kTitleHeight = 40, kLegendLine = 18, kLegendColumn = 290;
constexpr std::array<const char*, 11> kColors = {"#2a6fbb", "#c0392b", "#2e8b57", "#8e5bb5",
                                                 "#e08a1e", "#16a2a2", "#7f5539", "#d6499a",
                                                 "#5b6770", "#9aa21b", "#4b3fbf"};

std::string escaped(const std::string& words) {
  std::string safe;
  for (const char letter : words)
    if (letter == '&')
      safe += "&amp;";
    else if (letter == '<')
      safe += "&lt;";
    else
      safe += letter;
  return safe;
}

std::string text(double x, double y, const std::string& words, const char* more) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, escaped(words));
}

std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, style);
}

const char* color_of(size_t index) { return kColors[index % kColors.size()]; }

/// A step of 1, 2 or 5 times a power of ten that gives about five ticks.
double tick_step(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 4)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (power * factor >= span / 6) return power * factor;
  return power * 10;
}

struct Range {
  double low, high;
  double share(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

struct Cell {
  const Plot& plot;
  double x0, y0;
  Range across, up;

  double at_x(double x) const {
    const double share = std::clamp(across.share(x), 0.0, 1.0);  // bars may be longer than the plot
    return x0 + kLeft + share * (kCellWidth - kLeft - kRight);
  }
  double at_y(double y) const {
    const double share = std::clamp(up.share(y), 0.0, 1.0);
    return y0 + kCellHeight - kBottom - share * (kCellHeight - kTop - kBottom);
  }
};

Cell cell_of(const Plot& plot, double x0, double y0) {
  Range across{1e300, -1e300}, up{0, -1e300};
  for (const PlotSeries& series : plot.series)
    for (const PlotPoint& point : series.points) {
      across = {std::min(across.low, point.x), std::max(across.high, point.x)};
      up = {std::min(up.low, point.y), std::max(up.high, point.y)};
    }
  if (across.low > across.high) across = {0, 1};
  if (up.high <= up.low) up.high = up.low + 1;
  up.high *= 1.05;
  return {plot, x0, y0, across, up};
}

std::string draw_axes(const Cell& cell) {
  constexpr const char* kGrid = "stroke=\"#dddddd\"";
  constexpr const char* kSmall = "font-size=\"11\" text-anchor=\"middle\"";
  const Plot& plot = cell.plot;
  const double left = cell.x0 + kLeft, right = cell.x0 + kCellWidth - kRight;
  const double top = cell.y0 + kTop, bottom = cell.y0 + kCellHeight - kBottom;
  std::string out;
  const double y_step = tick_step(cell.up.high - cell.up.low);
  for (double y = std::ceil(cell.up.low / y_step) * y_step; y <= cell.up.high; y += y_step) {
    out += line(left, cell.at_y(y), right, cell.at_y(y), kGrid);
    out += text(left - 6, cell.at_y(y) + 4, fmt::format("{:g}", std::round(y / y_step) * y_step),
                "font-size=\"11\" text-anchor=\"end\"");
  }
  std::vector<std::pair<double, std::string>> ticks = plot.x_ticks;
  if (ticks.empty()) {
    const double step = tick_step(cell.across.high - cell.across.low + 1e-12);
    for (double x = std::ceil(cell.across.low / step) * step; x <= cell.across.high; x += step)
      ticks.emplace_back(x, fmt::format("{:g}", std::round(x / step) * step));
  }
  for (const auto& [x, label] : ticks) {
    out += line(cell.at_x(x), bottom, cell.at_x(x), bottom + 4, "stroke=\"#444444\"");
    out += text(cell.at_x(x), bottom + 16, label, kSmall);
  }
  out += line(left, bottom, right, bottom, "stroke=\"#444444\"");
  out += line(left, top, left, bottom, "stroke=\"#444444\"");
  out += text((left + right) / 2, bottom + 34, plot.x_name, kSmall);
  out += text(left - 40, top - 10, plot.y_name, "font-size=\"12\" font-weight=\"bold\"");
  return out;
}

// The intervals of a point. Where points are dense, they are a band.
std::string bars(const Cell& cell, const PlotPoint& point, const std::string& style) {
  const double x = cell.at_x(point.x), y = cell.at_y(point.y);
  std::string out;
  if (std::isfinite(point.half_width) && point.half_width > 0)
    out += line(x, cell.at_y(point.y - point.half_width), x, cell.at_y(point.y + point.half_width),
                style);
  if (std::isfinite(point.x_half_width) && point.x_half_width > 0)
    out += line(cell.at_x(point.x - point.x_half_width), y, cell.at_x(point.x + point.x_half_width),
                y, style);
  return out;
}

std::string draw_series(const Cell& cell) {
  std::string out;
  for (size_t index = 0; index < cell.plot.series.size(); ++index) {
    const char* color = color_of(index);
    const bool is_dense = cell.plot.series[index].points.size() >= 30;
    std::string path;
    for (const PlotPoint& point : cell.plot.series[index].points) {
      const double x = cell.at_x(point.x), y = cell.at_y(point.y);
      path += fmt::format("{:.1f},{:.1f} ", x, y);
      out += bars(cell, point,
                  fmt::format("stroke=\"{}\" stroke-width=\"1\"{}", color,
                              is_dense ? " stroke-opacity=\"0.25\"" : ""));
      if (!is_dense)
        out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", x, y,
                           2.5, color);
    }
    out +=
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>\n",
                    path, color);
  }
  return out;
}

double legend_height(const std::vector<Plot>& row, double width) {
  const auto columns = std::max(1.0, std::floor(width / kLegendColumn));
  return 26 + kLegendLine * std::ceil(static_cast<double>(row.front().series.size()) / columns);
}

std::string draw_legend(const std::vector<Plot>& row, double y, double width) {
  std::string out = text(kLeft - 40, y + 14, row.front().title, "font-size=\"14\"");
  const auto columns = static_cast<size_t>(std::max(1.0, std::floor(width / kLegendColumn)));
  for (size_t index = 0; index < row.front().series.size(); ++index) {
    const double x = kLeft - 40 + kLegendColumn * static_cast<double>(index % columns);
    const double at = y + 30 + kLegendLine * static_cast<double>(index / columns);
    out += line(x, at - 4, x + 22, at - 4,
                fmt::format("stroke=\"{}\" stroke-width=\"3\"", color_of(index)));
    out += text(x + 28, at, row.front().series[index].name, "font-size=\"12\"");
  }
  return out;
}

}  // namespace

std::string draw(const std::string& title, const std::vector<std::vector<Plot>>& rows) {
  size_t columns = 1;
  for (const auto& row : rows) columns = std::max(columns, std::min(row.size(), kMostColumns));
  const double width = kCellWidth * static_cast<double>(columns) + 20;
  double y = kTitleHeight;
  std::string body;
  for (const std::vector<Plot>& row : rows) {
    if (row.empty()) continue;
    body += draw_legend(row, y, width);
    y += legend_height(row, width);
    for (size_t index = 0; index < row.size(); ++index) {
      if (index > 0 && index % kMostColumns == 0) y += kCellHeight;
      const Cell cell =
          cell_of(row[index], kCellWidth * static_cast<double>(index % kMostColumns), y);
      body += draw_axes(cell) + draw_series(cell);
    }
    y += kCellHeight + 10;
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
             "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"DejaVu Sans, sans-serif\">\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
             width, y) +
         text(22, 26, title, "font-size=\"16\" font-weight=\"bold\"") + body + "</svg>\n";
}

}  // namespace braid::tools::serving_figures
