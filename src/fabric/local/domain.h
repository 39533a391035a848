// The domain for processes of one server. A write is a copy into memory that its owner has shared,
// by this process or a GPU; it uses no network interface (docs/fabric.md, "Processes and GPUs of
// one server"). Immediates, messages and writes into other host memory go through a queue that two
// processes share.
//
// Its contract is that of fabric/domain.h, with two additions. A process can write the memory that
// it has mapped; so a removed region is kHeldByPeer until the processes that mapped it, which are
// asked to unmap it, have done so or have ended. The destructor waits for its own copies. Peers are
// processes of the same user.
#pragma once

#include <memory>

#include "fabric/domain.h"

namespace braid::fabric::local {

Result<std::unique_ptr<Domain>> open_domain();

/// Whether the memory can be shared with peers: host memory, and GPU memory that was made to be
/// shared. Needs no lock of the driver's.
Status check_shareable(MutableBytes memory);

}  // namespace braid::fabric::local
