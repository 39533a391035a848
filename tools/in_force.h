// What programs under braid go by on this server: the options, and what they come to. In words, for
// `braid doctor`.
#pragma once

#include <string>

#include "base/options.h"
#include "multipath/cost_model.h"

namespace braid::tools {

struct InForce {
  std::string mover;     ///< which, and how it is chosen
  std::string sizes;     ///< from which on copies are carried, by direction
  std::string pageable;  ///< how memory that is not pinned is copied
  std::string options;   ///< that are set
};

/// `costs` is what the engine goes by. `is_measured`: they come from a file.
InForce in_force(const Options& options, const multipath::CostModel& costs, bool is_measured,
                 int paths);

}  // namespace braid::tools
