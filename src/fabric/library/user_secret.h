// The secret of engines that are reached from their own host alone and were given none: each user
// has one on each host. So engines of one user talk to each other, and those of other users are
// strangers.
#pragma once

#include <string>

#include "base/status.h"
#include "fabric/seal.h"

namespace braid::fabric {

/// "/dev/shm/braid-secret-UID": processes of one IPC namespace share the folder, and only the
/// file's owner can replace a file there. It goes with the next start of the host.
std::string user_secret_path();

/// Made by whoever comes first. An error if it cannot be made or read, or if somebody else's file
/// lies there.
Result<Secret> user_secret(const std::string& path = user_secret_path());

}  // namespace braid::fabric
