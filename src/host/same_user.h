// Who is at the other end of a TCP connection within this host. Users of one host reach each
// other's ports, so an engine that has no secret to tell its peers by asks the kernel whose process
// is there. Any thread; nothing blocks.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "host/tcp_owner.h"

namespace braid {

/// Whom an engine takes connections from, and connects to.
enum class Admits : uint8_t {
  kAnybody,     ///< what they say is sealed with a secret
  kOtherHosts,  ///< all processes of other hosts, and those of this user here
  kThisUser,    ///< processes of this host and this user
};

/// A user whose processes are ours: this one, and root, who can read and write all of this process
/// anyway.
bool is_our_user(uid_t user);

/// Whose process is there.
enum class Whose : uint8_t { kOurs, kNobodys, kAnotherUsers, kAnotherHosts, kUnknown };

/// Who would take a connection to this address now.
Whose whose_listener(const TcpEnd& at);
/// Who has made the connection from `its` to `own`, of this process. kNobodys: it has ended.
Whose whose_connection(const TcpEnd& its, const TcpEnd& own);

/// kNobodys is admitted by kAnybody alone.
bool is_admitted(Admits admits, Whose whose);
/// The error for one who is not admitted. `who`: "the peer", say.
Status refusal(Whose whose, const std::string& who, const TcpEnd& at);

}  // namespace braid
