// Lines over an axis, as SVG.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "transfer/sim/figure.h"

namespace braid::transfer::sim {
namespace {

constexpr double kWidth = 900, kHeight = 440, kLeft = 70, kRight = 160, kTop = 40, kBottom = 55;
constexpr std::array<const char*, 8> kColors = {"#c0392b", "#2a6fbb", "#2e8b57", "#8e5bb5",
                                                "#b8860b", "#5f6a72", "#111111", "#d46a9f"};

std::string text(double x, double y, const std::string& words, const std::string& more = {}) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-family=\"DejaVu Sans, sans-serif\" font-size=\"12\" "
      "{}>{}</text>\n",
      x, y, more, words);
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, style);
}

/// From a value to a place on the paper, and where its ticks are.
struct Axis {
  bool is_logarithmic = false;
  double least = 0, most = 1;
  double from = 0, to = 1;

  double place(double value) const {
    const double part = is_logarithmic ? (std::log(std::max(value, least)) - std::log(least)) /
                                             (std::log(most) - std::log(least))
                                       : (value - least) / (most - least);
    return from + part * (to - from);
  }
  std::vector<double> ticks() const {
    std::vector<double> found;
    if (is_logarithmic) {
      const double base = most / least > 1e4 ? 10 : 4;
      for (double value = least; value <= most * 1.001; value *= base) found.push_back(value);
      return found;
    }
    const double power = std::pow(10, std::floor(std::log10(most / 5)));
    double step = power * 10;
    for (const double factor : {5.0, 2.0, 1.0})
      if (power * factor >= most / 8) step = power * factor;
    for (double value = 0; value <= most * 1.001; value += step) found.push_back(value);
    return found;
  }
};

Axis axis_of(const Plot& plot, bool is_x) {
  Axis axis;
  axis.is_logarithmic = is_x ? plot.is_x_logarithmic : plot.is_y_logarithmic;
  double least = 1e300, most = 0;
  for (const Series& series : plot.series) {
    for (const auto& [x, y] : series.points) {
      const double value = is_x ? x : y;
      if (value > 0) least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  if (most <= 0) least = most = 1;
  axis.most = axis.is_logarithmic && most <= least ? 2 * least : most;
  axis.least = axis.is_logarithmic ? least : 0;
  if (!is_x) axis.most *= 1.05;
  axis.from = is_x ? kLeft : kHeight - kBottom;
  axis.to = is_x ? kWidth - kRight : kTop;
  return axis;
}

}  // namespace

std::string to_svg(const Plot& plot) {
  const Axis x = axis_of(plot, true), y = axis_of(plot, false);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" viewBox=\"0 0 "
      "{0:g} {1:g}\">\n<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += text(kLeft, 22, plot.title, "font-weight=\"bold\"");
  for (const double value : y.ticks()) {
    svg += line(kLeft, y.place(value), kWidth - kRight, y.place(value), "stroke=\"#e4e4e4\"");
    svg += text(kLeft - 8, y.place(value) + 4, fmt::format("{:.4g}", value),
                "text-anchor=\"end\" fill=\"#666666\"");
  }
  for (const double value : x.ticks())
    svg += text(x.place(value), kHeight - kBottom + 18, fmt::format("{:.4g}", value),
                "text-anchor=\"middle\" fill=\"#666666\"");
  svg += text((kLeft + kWidth - kRight) / 2, kHeight - 14, plot.x_label, "text-anchor=\"middle\"");
  svg += text(16, kTop - 6, plot.y_label);
  for (const auto& [at, what] : plot.marks) {
    svg += line(x.place(at), kTop, x.place(at), kHeight - kBottom,
                "stroke=\"#999999\" stroke-dasharray=\"4 3\"");
    svg += text(x.place(at) + 4, kTop + 12, what, "fill=\"#666666\"");
  }
  for (size_t i = 0; i < plot.series.size(); ++i) {
    const char* color = kColors[i % kColors.size()];
    std::string points;
    for (const auto& [at, value] : plot.series[i].points)
      points += fmt::format("{:.1f},{:.1f} ", x.place(at), y.place(value));
    svg +=
        fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" points=\"{}\"/>\n",
                    color, points);
    svg += text(kWidth - kRight + 12, kTop + 12 + 18 * static_cast<double>(i), plot.series[i].name,
                fmt::format("fill=\"{}\"", color));
  }
  return svg + "</svg>\n";
}

}  // namespace braid::transfer::sim
