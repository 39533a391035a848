// What is written of figures that have run: JSON, SVG, and Markdown that stands the paper's words
// beside what the simulation says.
#pragma once

#include <string>
#include <vector>

#include "tools/serving/figures.h"

namespace braid::tools::serving_figures {

std::string json_of(const Figure& figure, const Setting& setting, const Laboratory& laboratory);
std::string svg_of(const Figure& figure, const Laboratory& laboratory);

struct Judged {
  std::string words;
  std::string verdict;  ///< "appears", "does not appear", "cannot be told"
  std::string figures;  ///< the difference and its interval
  Estimate difference;  ///< as a share
};
Judged judge(const Figure& figure, const Claim& claim, const Laboratory& laboratory);

/// Head of the report: what was simulated with which inputs.
std::string report_head(const Setting& setting, int seeds);
std::string report_of(const Figure& figure, const Laboratory& laboratory);

}  // namespace braid::tools::serving_figures
