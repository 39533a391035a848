// verbs;ofi_rxm: InfiniBand, RoCE and iWARP. The provider verbs has connected endpoints alone
// (fi_verbs(7)); libfabric's rxm makes datagrams of them (fi_rxm(7)). No such device has been seen:
// what is said here comes from the man pages and the source of libfabric 1.17, and is shown on
// tests/fabric/fake_provider.
//
// - listens_at_address: librdmacm finds the device by an address of its interface (IPoIB or RoCE),
//   and makes connections there (fi_verbs(7), "Requirements").
// - Immediates and keys have 32 bits, the provider chooses keys, sources and buffers of messages
//   are registered (verbs_info.c, verbs_domain_attr). A write has one target (rma_iov_limit 1).
// - Completion: verbs knows no FI_DELIVERY_COMPLETE, and takes it as FI_TRANSMIT_COMPLETE: the
//   target's NIC has acknowledged the write (verbs_rma.c). The order of PCIe then lets its CPU see
//   the bytes before it sees anything that comes later.
// - removal_fences is false. ibv_dereg_mr does fence, but a write to a region that is gone is a
//   remote access error, which breaks the connection of a peer that has only been slow.
//   libfabric's registration cache, which does not fence, must be off: the domain looks, and says
//   so.
// - closing_fences: closing an endpoint closes its connections, and ibv_destroy_qp ends what comes
//   in (rxm_freeall_conns, vrb_ep_close).
// - keeps_broken_connections: after an error completion a queue pair stays in its error state. rxm
//   passes the error on, and uses the connection again (rxm_handle_comp_error, RXM_RMA). Removing
//   the peer's address does not close it (rxm_domain.c, FI_AV_REMOVE_CLEANUP).
#include "fabric/ofi/quirks.h"

namespace braid::fabric::ofi {

const Quirks& verbs_quirks() {
  static constexpr Quirks quirks{.provider = "verbs;ofi_rxm",
                                 .listens_at_address = true,
                                 .closing_fences = true,
                                 .keeps_broken_connections = true};
  return quirks;
}

}  // namespace braid::fabric::ofi
