// Breaks a TCP rail of this process from within, as a NIC that fails would: without rights, and
// without a word to libfabric. For `braid fabric demo` and for tests.
#pragma once

#include <string>

namespace braid::tools {

/// Ends all connections from or to this IPv4 address of the host; new ones can be made. Returns how
/// many.
int break_connections(const std::string& address);

/// The same, and nobody can connect to this process at that address any more.
int kill_rail(const std::string& address);

}  // namespace braid::tools
