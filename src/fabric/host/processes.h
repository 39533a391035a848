// Watches processes of this host by pidfds (Linux 5.3).
#pragma once

#include <memory>

#include "fabric/processes.h"

namespace braid::fabric {

/// A peer names its own process, and that claim is used only to end the peer's connection when the
/// named process has ended. So a peer that names another's process harms only itself.
std::shared_ptr<Processes> host_processes();

}  // namespace braid::fabric
