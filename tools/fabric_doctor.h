// `braid fabric doctor`: which networks and which ways into GPU memory this host has, and what is
// missing for the others.
#pragma once

#include <string>

namespace braid::tools {

/// Opens each provider at this address of the host. Returns the exit code: 1 if none works, or a
/// variable of the fabric (BRAID_FABRIC_*) lets no engine open.
int fabric_doctor(const std::string& address);

}  // namespace braid::tools
