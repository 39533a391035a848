// tcp;ofi_rxm: TCP sockets, with messages by the utility provider rxm. Any host, no special
// network.
//
// A write's target is looked up when its header comes; its bytes then go from the socket to memory
// as they arrive. Closing the region in between does not stop them: hence no fence.
#include "fabric/ofi/quirks.h"

namespace braid::fabric::ofi {

const Quirks& tcp_quirks() {
  static constexpr Quirks quirks{.provider = "tcp;ofi_rxm",
                                 .listens_at_address = true,
                                 .connects_by_tcp = true,
                                 .copies_by_cpu = true,
                                 .opens_slowly = true,
                                 .lands_in_order = true,
                                 .answers_writes = true,
                                 .closing_fences = true,
                                 .drains_before_close = true,
                                 .refuses_second_connection = true,
                                 .has_wait_descriptor = true};
  return quirks;
}

}  // namespace braid::fabric::ofi
