// Where RotaSched loses, said of a figure's JSON: of one that has just been made, or of a record.
#pragma once

#include <string>

#include "base/status.h"

namespace braid::tools::serving_figures {

/// A section of the report: each load and metric at which `braid` or `paper` is worse than another
/// policy of the figure, or by four links worse than by one, with the whole 95 % interval over
/// seeds. Empty where the figure compares none of these. `json` is what `json_of` writes; `name`
/// begins errors.
Result<std::string> losses_of(const std::string& json, const std::string& name);

}  // namespace braid::tools::serving_figures
