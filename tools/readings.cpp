#include "tools/readings.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/median.h"

namespace braid::tools {

double Readings::median() const { return braid::median(values); }

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
