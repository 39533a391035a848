// shm: processes of one host. The target copies, out of the writer's memory (CMA) or out of shared
// memory, when it polls.
//
// A write to a peer that is gone, or to a region that was closed, never completes: only deadlines
// end it. A write of no bytes is not safe, so an immediate alone is a write of one byte (Address).
#include "fabric/ofi/quirks.h"

namespace braid::fabric::ofi {

const Quirks& shm_quirks() {
  static constexpr Quirks quirks{"shm", false, false};
  return quirks;
}

}  // namespace braid::fabric::ofi
