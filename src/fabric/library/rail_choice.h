// Chooses the network interfaces that are an engine's rails. The host's interfaces come as
// arguments.
//
// The pattern is that of NCCL_SOCKET_IFNAME: names or beginnings of names, separated by commas.
// Each must match a NIC. A leading `^` takes every NIC that is not named, is up and has an address,
// except loopback. A leading `=` (or `^=`) matches whole names only.
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
  int numa_node = -1;  ///< the node of most of them, by the kernel's number; -1: unknown
};

/// For providers whose rails are RDMA devices (ofi/quirks.h): the NICs that have a device, with the
/// device's name as the address.
std::vector<topology::Nic> by_rdma_device(const std::vector<topology::Nic>& nics);

/// Rails at these addresses, as they are.
RailChoice rails_at(const std::vector<std::string>& addresses,
                    const std::vector<topology::Nic>& nics);

/// The NICs that the pattern takes, in the order of its words. The NICs of one word, or of `^`, are
/// ordered by name. Each listens at its first address. An error names the wrong word, and the NICs
/// of the host.
Result<RailChoice> choose_rails(std::string_view pattern, const std::vector<topology::Nic>& nics);

/// Chooses by the options, or else by kNicsVariable (not for `local`), or else loopback alone.
Result<RailChoice> rails_for(const ServiceOptions& options, const std::vector<topology::Nic>& nics);

}  // namespace braid::fabric
