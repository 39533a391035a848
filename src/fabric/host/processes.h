// Processes of this host, by pidfds of the kernel (Linux 5.3).
#pragma once

#include <memory>

#include "fabric/processes.h"

namespace braid::fabric {

/// What a peer says of its process is not believed further than this: its connection is ended when
/// the process that it names has ended. Whoever names another's harms himself.
std::shared_ptr<Processes> host_processes();

}  // namespace braid::fabric
