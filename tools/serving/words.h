// Numbers of figures as text.
#pragma once

#include <fmt/core.h>

#include <cmath>
#include <string>

#include "tools/serving/figures.h"

namespace braid::tools::serving_figures {

/// What a metric is shown times.
inline double scale_of(const Shown& shown) { return std::string(shown.unit) == "%" ? 100 : 1; }

// Four significant digits at most.
inline std::string number(double value) { return fmt::format("{:.4g}", value); }

inline std::string with_interval(const Estimate& estimate, double scale) {
  if (!std::isfinite(estimate.half_width)) return number(estimate.mean * scale);
  // What rounding leaves of equal values is none.
  const bool is_equal = estimate.half_width < 1e-12 * std::abs(estimate.mean);
  return fmt::format("{} ±{:.2g}", number(estimate.mean * scale),
                     is_equal ? 0 : estimate.half_width * scale);
}

}  // namespace braid::tools::serving_figures
