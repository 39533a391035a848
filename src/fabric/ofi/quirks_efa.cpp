// efa: Elastic Fabric Adapters of AWS, reliable datagrams without order (fi_efa(7)). No such device
// has been seen: what is said here comes from the man page and the source of libfabric 1.17, and is
// shown on tests/fabric/fake_provider.
//
// - takes_device: its endpoints name themselves by the device's GID and a queue pair. A rail is a
//   device ("rdmap0s6"); the domain is called "rdmap0s6-rdm" (efa_prov_info.c).
// - Immediates and keys have 32 bits, the provider chooses keys. A write has one target
//   (rma_iov_limit 1). FI_MR_LOCAL is the program's choice (efa_user_info.c). braid takes it: the
//   domain is then without the registration cache (efa_domain.c), which would not fence.
// - Completion: FI_DELIVERY_COMPLETE is supported, also for writes that packets carry
//   (efa_prov_info.c, tx_attr->op_flags).
// - removal_fences is false: a write that packets carry looks its target up when it begins, and its
//   bytes land as they come (rxr_pkt_type_req.c, rxr_rma.c). Newer devices write by themselves.
// - closing_fences: closing an endpoint destroys its queue pair (efa_ep.c), and nothing that comes
//   in is handled any more.
// - There are no connections to break: a wrong key fails the write alone.
#include "fabric/ofi/quirks.h"

namespace braid::fabric::ofi {

const Quirks& efa_quirks() {
  static constexpr Quirks quirks{.provider = "efa", .takes_device = true, .closing_fences = true};
  return quirks;
}

}  // namespace braid::fabric::ofi
