// Connections of this process, as the kernel knows them: libfabric has no name for them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace braid::fabric::ofi {

/// One connection. Whoever owns the descriptor may close it at any time.
struct Connection {
  int descriptor = -1;
  unsigned long inode = 0;  // of the socket: the number of a closed descriptor is used again
  bool is_open() const;
};

/// `name` is a socket address, as fi_getname gives it. Also those that have ended, as long as they
/// are not closed.
std::vector<Connection> incoming_at(std::span<const std::byte> name);
/// Those that this process has opened to that address of others.
std::vector<Connection> outgoing_to(std::span<const std::byte> name);

/// The peer sees the connection end. Here the bytes that have come already are still read, and then
/// its end, as if the peer had closed it.
void shut_down(const Connection& connection);

}  // namespace braid::fabric::ofi
