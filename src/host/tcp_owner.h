// Whose TCP sockets those of this network namespace are, as the kernel says: the user whose process
// has made them. A user of another user namespace who has no number in this one is nobody's
// (/proc/sys/kernel/overflowuid). Any thread; nothing blocks.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace braid {

/// One end of a TCP connection, or where a socket listens. IPv4 as ::ffff:127.0.0.1.
struct TcpEnd {
  in6_addr address{};
  in_port_t port = 0;  ///< in the order of the network
  uint32_t scope = 0;  ///< the interface of a link-local address

  /// None: this is no such address.
  static std::optional<TcpEnd> of(const void* socket_address, size_t size_bytes);
  /// Of a socket of this process.
  static std::optional<TcpEnd> own_of(int socket);
  static std::optional<TcpEnd> peer_of(int socket);

  bool is_four() const { return IN6_IS_ADDR_V4MAPPED(&address); }
  /// 0.0.0.0 or ::.
  bool is_wildcard() const;
  /// Packets to it stay in this network namespace. An error: this process can have no socket to ask
  /// by.
  Result<bool> is_here() const;
  std::string text() const;  ///< "127.0.0.1:80", "[::1]:80"

  bool operator==(const TcpEnd& other) const { return order(other) == 0; }
  bool operator<(const TcpEnd& other) const { return order(other) < 0; }

 private:
  int order(const TcpEnd& other) const;
};

/// How the kernel is asked: for one socket (sock_diag), or by reading all of them in /proc/net/tcp,
/// where a sandbox does not have the former.
enum class TcpTable : uint8_t { kSockDiag, kProc };
TcpTable tcp_table();

/// The user who listens there: at this address, or at all. None: nobody does. An error: the kernel
/// does not say.
Result<std::optional<uid_t>> listening_user(const TcpEnd& at, TcpTable table = tcp_table());
/// The user of the socket at `its` end of a connection to `other`. None: there is no such
/// connection, or its process has closed it.
Result<std::optional<uid_t>> connected_user(const TcpEnd& its, const TcpEnd& other,
                                            TcpTable table = tcp_table());

}  // namespace braid
