// Several readings of one thing.
#pragma once

#include <string>
#include <vector>

namespace braid::tools {

struct Readings {
  std::vector<double> values;
  double median() const;
  double lowest() const;
  double highest() const;
  /// "median (lowest-highest)".
  std::string text(int digits) const;
};

}  // namespace braid::tools
