#pragma once

#include <cstddef>

#include "fabric/seal.h"

namespace braid::fabric::staged {

struct Options {
  Secret secret = {};  ///< seals the messages between staged domains; all have the same, or none
  /// So many peers have a door for host memory at all endpoints of the wire, and so many are
  /// written to there. The places that are left are those of rings.
  size_t wide_max = ~size_t{0};
};

}  // namespace braid::fabric::staged
