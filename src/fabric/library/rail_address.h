// Whether this host has an address, and which ones it has instead: libfabric does not say. The
// host's interfaces come as arguments.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/library/options.h"
#include "topology/server.h"

namespace braid::fabric {

/// "eth0 has 10.0.0.7 and fd00::7, lo has 127.0.0.1"
std::string list_addresses(const std::vector<topology::Nic>& nics);

/// 0.0.0.0 and ::.
bool is_wildcard(const std::string& address);

/// The numbers of a host. An error names the addresses that this host has: none of those is one of
/// them, or `host` is not known.
Result<std::vector<std::string>> addresses_here(const std::string& host,
                                                const std::vector<topology::Nic>& nics);

/// An error names the addresses that this host has. A rail has one of them, so a wildcard is wrong,
/// too. The name of an RDMA device is an address.
Status check_rail_address(const std::string& address, const std::vector<topology::Nic>& nics);

/// The same of all rails of an engine, where its provider listens at addresses.
Status check_rail_addresses(const ServiceOptions& options,
                            const std::vector<std::string>& addresses,
                            const std::vector<topology::Nic>& nics);

}  // namespace braid::fabric
