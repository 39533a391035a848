#include "tools/readings.h"

#include <fmt/core.h>

#include <algorithm>

namespace braid::tools {

double Readings::median() const {
  if (values.empty()) return 0;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  return (sorted[sorted.size() / 2] + sorted[(sorted.size() - 1) / 2]) / 2;
}

double Readings::lowest() const {
  return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

double Readings::highest() const {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

std::string Readings::text(int digits) const {
  return fmt::format("{:.{}f} ({:.{}f}-{:.{}f})", median(), digits, lowest(), digits, highest(),
                     digits);
}

}  // namespace braid::tools
