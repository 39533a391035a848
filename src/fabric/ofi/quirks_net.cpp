// net: TCP sockets without rxm, the newer of the two. As for tcp;ofi_rxm, a write that has begun
// does not end when its region is closed. The descriptor of its queues is readable all the time.
#include "fabric/ofi/quirks.h"

namespace braid::fabric::ofi {

const Quirks& net_quirks() {
  static constexpr Quirks quirks{.provider = "net",
                                 .listens_at_address = true,
                                 .connects_by_tcp = true,
                                 .closing_fences = true};
  return quirks;
}

}  // namespace braid::fabric::ofi
