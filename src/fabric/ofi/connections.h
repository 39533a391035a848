// The TCP connections of this process, as the kernel lists them: libfabric does not expose them.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "host/file.h"

namespace braid::fabric::ofi {

/// One connection. The owner of the descriptor may close it at any time.
struct Connection {
  int descriptor = -1;
  unsigned long inode = 0;  // of the socket, since descriptor numbers are used again
  bool is_open() const;
};

/// A list of the process's connections, made when it is first asked. To make one takes tens of
/// milliseconds if there are a thousand peers. So when many peers are lost at once, as with a
/// switch, one list serves all of them. `name` is a socket address, as fi_getname gives it.
class Connections {
 public:
  /// The connections that peers have opened to it, including ended ones that are not closed yet.
  std::vector<Connection> incoming_at(std::span<const std::byte> name);
  /// Shuts down the socket that listens there, so that no further connection comes, and those that
  /// have come, which it returns.
  std::vector<Connection> shut_down_at(std::span<const std::byte> name);
  /// The connections that this process has opened to that address of another process.
  std::vector<Connection> outgoing_to(std::span<const std::byte> name);
  /// Those that have not been answered yet.
  std::vector<Connection> connecting_to(std::span<const std::byte> name);
  /// There may be new connections.
  void forget() {
    if (is_listed_) *this = Connections();
  }

 private:
  using Places = std::map<std::vector<std::byte>, std::vector<Connection>>;
  static std::vector<Connection> at(const Places& places, std::span<const std::byte> name);
  void list();

  bool is_listed_ = false;
  Places listening_, incoming_, outgoing_;
};

/// The peer sees the connection end. This process still reads the bytes that have come, and then
/// the end, as if the peer had closed it.
void shut_down(const Connection& connection);

/// A second descriptor of an established connection, which stays when the owner of the first one
/// closes that. Not open: the connection is not established.
File hold(const Connection& connection);
/// This process has ended the connection, and the peer has not confirmed it.
bool waits_for_its_end(const File& connection);
/// Ends the connection at once. The peer is told by a single packet.
void reset(const File& connection);

}  // namespace braid::fabric::ofi
