// Which network interfaces are an engine's rails. What the host has comes as arguments.
//
// The pattern is as NCCL_SOCKET_IFNAME takes it: names or beginnings of names with commas between,
// each of which must be there. `^` before all takes every other NIC that is up and has an address,
// but not loopback. `=` (`^=`) before all means whole names only.
//   eth0,eth1     ^docker0,veth     =eth1
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "fabric/library/options.h"
#include "topology/server.h"

namespace braid::fabric {

inline constexpr const char* kNicsVariable = "BRAID_FABRIC_NICS";

struct RailChoice {
  std::vector<std::string> addresses;  ///< one for each rail
  std::vector<std::string> nics;       ///< by rail; empty: no NIC of this host has the address
  int numa_node = -1;                  ///< of most of them, as the kernel numbers it; -1: unknown
};

/// For providers whose rails are RDMA devices (ofi/quirks.h): those that have one, at its name.
std::vector<topology::Nic> by_rdma_device(const std::vector<topology::Nic>& nics);

/// Rails at these addresses, as they are.
RailChoice rails_at(const std::vector<std::string>& addresses,
                    const std::vector<topology::Nic>& nics);

/// The NICs that the pattern takes, in its order; those of one word, or of `^`, by name. Each
/// listens at its first address. An error names the word, and the NICs that are there.
Result<RailChoice> choose_rails(std::string_view pattern, const std::vector<topology::Nic>& nics);

/// As the options say, or else kNicsVariable, or else loopback alone.
Result<RailChoice> rails_for(const ServiceOptions& options, const std::vector<topology::Nic>& nics);

}  // namespace braid::fabric
