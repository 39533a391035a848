// `braid fabric demo`: bandwidth over time by rail, as SVG.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/fabric_demo_parts.h"

namespace braid::tools {
namespace {

constexpr double kWidth = 960, kHeight = 480, kLeft = 70, kRight = 150, kTop = 70, kBottom = 60;
constexpr double kSmoothSeconds = 0.5;
constexpr std::array<const char*, kDemoRails> kColors = {"#2a6fbb", "#2e8b57", "#c0392b",
                                                         "#8e5bb5"};

uint64_t bytes_over(const DemoSample& sample, size_t rail) {
  uint64_t bytes = 0;
  for (const auto& owner : sample.bytes) bytes += owner[rail];
  return bytes;
}

struct Point {
  double seconds;
  double gbps;
};

/// Between each sample and the one half a second before.
std::vector<Point> bandwidth(std::span<const DemoSample> samples, size_t rail) {
  std::vector<Point> points;
  size_t from = 0;
  for (const DemoSample& to : samples) {
    while (samples[from].seconds < to.seconds - kSmoothSeconds) ++from;
    const double passed = to.seconds - samples[from].seconds;
    if (passed <= 0) continue;
    const auto bytes = static_cast<double>(bytes_over(to, rail) - bytes_over(samples[from], rail));
    points.push_back({to.seconds, bytes / passed / 1e9});
  }
  return points;
}

std::string text(double x, double y, const std::string& words, const char* more) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-family=\"DejaVu Sans, sans-serif\" {}>{}</text>\n", x,
      y, more, words);
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, style);
}

/// A step of 1, 2 or 5 times a power of ten that gives 4 to 10 ticks.
double tick_step(double highest) {
  const double power = std::pow(10, std::floor(std::log10(highest / 5)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (power * factor >= highest / 8) return power * factor;
  return power * 10;
}

class Plot {
 public:
  Plot(double seconds, double gbps)
      : seconds_(seconds), step_(tick_step(gbps)), top_(std::ceil(gbps / step_) * step_) {}

  double x(double seconds) const { return kLeft + seconds / seconds_ * (kWidth - kLeft - kRight); }
  double y(double gbps) const {
    return kHeight - kBottom - gbps / top_ * (kHeight - kTop - kBottom);
  }

  std::string axes() const {
    std::string parts;
    for (int tick = 0; tick * step_ <= top_ * 1.001; ++tick) {
      const double gbps = tick * step_;
      parts += line(kLeft, y(gbps), kWidth - kRight, y(gbps), "stroke=\"#e4e4e4\"");
      parts += text(kLeft - 8, y(gbps) + 4, fmt::format("{:g}", gbps),
                    "font-size=\"12\" text-anchor=\"end\" fill=\"#666666\"");
    }
    const double every = tick_step(seconds_);
    for (int tick = 0; tick * every <= seconds_; ++tick)
      parts += text(x(tick * every), kHeight - kBottom + 20, fmt::format("{:g}", tick * every),
                    "font-size=\"12\" text-anchor=\"middle\" fill=\"#666666\"");
    parts += text((kLeft + kWidth - kRight) / 2, kHeight - 16, "seconds",
                  "font-size=\"13\" text-anchor=\"middle\" fill=\"#222222\"");
    return parts + text(kLeft - 50, kTop - 12, "GB/s", "font-size=\"13\" fill=\"#222222\"");
  }

  std::string curve(const std::vector<Point>& points, const char* color) const {
    std::string places;
    for (const Point& point : points)
      places += fmt::format("{:.1f},{:.1f} ", x(point.seconds), y(point.gbps));
    return fmt::format(
        "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" points=\"{}\"/>\n", color,
        places);
  }

 private:
  double seconds_, step_, top_;
};

}  // namespace

std::string demo_svg(std::span<const DemoSample> samples, const std::vector<DemoMark>& marks) {
  std::array<std::vector<Point>, kDemoRails> curves;
  double highest = 1e-3;
  for (size_t rail = 0; rail < kDemoRails; ++rail) {
    curves[rail] = bandwidth(samples, rail);
    for (const Point& point : curves[rail]) highest = std::max(highest, point.gbps);
  }
  const Plot plot(samples.empty() ? 1 : std::max(samples.back().seconds, 0.1), highest);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
      kWidth, kHeight);
  svg += text(kLeft, 28, "braid fabric demo: bandwidth by rail, tcp on loopback",
              "font-size=\"17\" fill=\"#222222\"");
  svg += plot.axes();
  for (const DemoMark& mark : marks) {
    const double x = plot.x(mark.seconds);
    svg += line(x, kTop, x, kHeight - kBottom, "stroke=\"#666666\" stroke-dasharray=\"4 4\"");
    svg += text(x + 4, kTop - 4, mark.what, "font-size=\"12\" fill=\"#222222\"");
  }
  for (size_t rail = 0; rail < kDemoRails; ++rail) {
    svg += plot.curve(curves[rail], kColors[rail]);
    const double y = kTop + 22 * static_cast<double>(rail) + 10;
    const double x = kWidth - kRight + 16;
    svg += line(x, y - 4, x + 20, y - 4,
                fmt::format("stroke=\"{}\" stroke-width=\"3\"", kColors[rail]).c_str());
    svg += text(x + 26, y, fmt::format("rail {}", rail), "font-size=\"13\" fill=\"#222222\"");
  }
  return svg + "</svg>\n";
}

}  // namespace braid::tools
