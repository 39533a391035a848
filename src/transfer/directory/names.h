// Names of processes, and where the processes are found.
//
//   braid://10.0.0.7:4750               any engine that listens there
//   braid://10.0.0.7:4750/5f3c...       that engine alone: 32 digits of its incarnation
//   prefill-0                           on this host: a Unix socket in a folder of this user's
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transfer/types.h"

namespace braid::transfer {

struct HostAndPort {
  std::string host;  ///< a name or an address; IPv6 without its brackets
  uint16_t port = 0;
};

struct Name {
  std::string text;           ///< as it was given
  HostAndPort at;             ///< empty host: a bare name
  Incarnation incarnation{};  ///< all zero: any engine there
  bool is_bare() const { return at.host.empty(); }
};

inline constexpr std::string_view kScheme = "braid://";

/// An error says which part is wrong.
Result<Name> parse_name(std::string_view text);
Result<HostAndPort> parse_host_and_port(std::string_view text);
std::string write_name(const HostAndPort& at, const Incarnation& incarnation);

/// Bare names: letters, digits, '.', '_' and '-', at most 64, not beginning with '.'.
Status check_bare_name(std::string_view name);

/// The folder of this user's sockets: mode 0700, owned by this user, and made if it is missing.
/// BRAID_RUNTIME_DIR, or XDG_RUNTIME_DIR/braid, or /tmp/braid-UID.
Result<std::string> socket_folder();

}  // namespace braid::transfer
