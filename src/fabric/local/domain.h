// GPUs of the processes of one server: a write is a copy into memory that its owner has shared,
// over NVLink or PCIe, with no network interface (docs/fabric.md, "GPUs of one server").
// Immediates, messages and writes into host memory go through memory that two processes share.
//
// Its contract is that of fabric/domain.h, with these additions: whoever has mapped memory can
// write it, so a region that was removed is kHeldByPeer until the processes that mapped it have let
// go, when asked, or have ended; and the destructor waits for its own copies. Peers are processes
// of the same user.
#pragma once

#include <memory>

#include "fabric/domain.h"

namespace braid::fabric::local {

Result<std::unique_ptr<Domain>> open_domain();

/// Whether peers may be let write there: host memory, and GPU memory that was made to be shared.
/// Needs no lock of the driver's.
Status check_shareable(MutableBytes memory);

}  // namespace braid::fabric::local
