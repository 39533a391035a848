// The TCP connections of this process, as the kernel lists them: libfabric does not expose them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace braid::fabric::ofi {

/// One connection. The owner of the descriptor may close it at any time.
struct Connection {
  int descriptor = -1;
  unsigned long inode = 0;  // of the socket, since descriptor numbers are used again
  bool is_open() const;
};

/// `name` is a socket address, as fi_getname gives it. The connections that peers have opened to
/// it, including ended ones that are not closed yet.
std::vector<Connection> incoming_at(std::span<const std::byte> name);
/// The connections that this process has opened to that address of another process.
std::vector<Connection> outgoing_to(std::span<const std::byte> name);

/// The peer sees the connection end. This process still reads the bytes that have come, and then
/// the end, as if the peer had closed it.
void shut_down(const Connection& connection);

}  // namespace braid::fabric::ofi
