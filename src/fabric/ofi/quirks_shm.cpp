// shm: processes of one host. The target copies, out of the writer's memory (CMA) or out of shared
// memory, when it polls.
//
// The answers to an endpoint's postings stand in one queue, whose head waits for its peer: while
// one peer is stopped or dead, nothing else of that endpoint completes. Hence an endpoint for each
// peer. A write to a peer that is gone, or to a region or door that was closed, never completes: it
// is abandoned once the peer's process has ended, or the peer has said that its door is shut. A
// write of no bytes is not safe, so an immediate alone is a write of one byte (Address).
#include "fabric/ofi/quirks.h"

namespace braid::fabric::ofi {

const Quirks& shm_quirks() {
  static constexpr Quirks quirks{.provider = "shm",
                                 .listens_at_address = false,
                                 .reaches_hosts = false,
                                 .copies_by_cpu = true,
                                 .lands_in_order = true,
                                 .closing_fences = true,
                                 .reads_before_close = true,
                                 .needs_endpoint_for_each_peer = true,
                                 .shares_locks = true,
                                 .peers_max = 252,  // SMR_MAX_PEERS is 256
                                 .has_doorbells = true};
  return quirks;
}

}  // namespace braid::fabric::ofi
