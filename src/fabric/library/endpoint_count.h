// How many endpoints an address has where CPUs copy every byte (ofi/quirks.h). An endpoint is as
// fast there as one thread on each side. Each further one has a thread of its own, and a connection
// to every peer. Fabrics (endpoints.h) and transfers share this.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "topology/server.h"

namespace braid::fabric {

/// How many an address of a fabric has: a number from 1 to kEndpointsMax; without it
/// `usual_endpoints`.
inline constexpr const char* kEndpointsVariable = "BRAID_FABRIC_ENDPOINTS";

/// What all such endpoints of an engine share.
struct EndpointRoom {
  size_t cpus = 1;         ///< that the engine's threads may use
  size_t descriptors = 0;  ///< that the process may have open
  size_t addresses = 1;    ///< an address counts once for each such provider
};

/// Of this process, for the calling thread and those that it starts.
EndpointRoom endpoint_room(size_t addresses);

/// `nic_gbps`, in 10^9 bytes a second; none: no NIC limits the address, or it is not known.
size_t usual_endpoints(std::optional<double> nic_gbps, const EndpointRoom& room);

/// That of the NIC with this address. None: no NIC limits it, or the NIC does not say.
std::optional<double> link_gbps(const std::string& address, const std::vector<topology::Nic>& nics);

/// What the user asks for by the variable; none: nothing.
Result<std::optional<size_t>> asked_endpoints();

/// How many of an engine's doors are open at all its endpoints, and so how many peers use all of
/// them. The program keeps most of its descriptors and memory.
size_t doors_at_all_endpoints(const EndpointRoom& room, size_t endpoints);

/// What an engine with so many addresses has.
struct EndpointCount {
  std::optional<size_t> asked;
  EndpointRoom room;
  const std::vector<topology::Nic>& nics;
  /// 1 where the limit of descriptors allows no peer several.
  size_t at(const std::string& address) const;
};
Result<EndpointCount> endpoint_count(size_t addresses, const std::vector<topology::Nic>& nics);

}  // namespace braid::fabric
