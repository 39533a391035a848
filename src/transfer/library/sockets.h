// How many rails over sockets an address has. The CPUs copy every byte there, so one rail is as
// fast as one thread at each end; further rails each have a connection to every peer, and a thread.
#pragma once

#include <cstddef>
#include <optional>

#include "base/status.h"

namespace braid::transfer {

/// How many rails an address of sockets gets: a number from 1 to 16; without it `usual_sockets`.
inline constexpr const char* kSocketsVariable = "BRAID_TRANSFER_SOCKETS";

/// What all rails over sockets of an engine share.
struct SocketRoom {
  size_t cpus = 1;         ///< that the engine's threads may use
  size_t descriptors = 0;  ///< that the process may have open
  size_t addresses = 1;    ///< an address counts once for each provider over sockets
};

/// Of this process, for the calling thread and those that it starts.
SocketRoom socket_room(size_t addresses);

/// `nic_gbps`, in 10^9 bytes a second; none: no NIC limits the address, or it is not known.
size_t usual_sockets(std::optional<double> nic_gbps, const SocketRoom& room);

/// What the user asks for; none: nothing.
Result<std::optional<size_t>> asked_sockets();

/// The number for each address of an engine.
struct Sockets {
  std::optional<size_t> asked = {};
  SocketRoom room = {};
  size_t at(std::optional<double> nic_gbps) const {
    return asked ? *asked : usual_sockets(nic_gbps, room);
  }
};

}  // namespace braid::transfer
