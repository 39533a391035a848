// The UUIDs of the emulated server's GPUs.
#pragma once

#include <cuda.h>

#include "topology/server.h"

namespace braid::emulator {

/// The UUID of the server's GPU with this number: "braid", the server's name and the number, the
/// same in every run.
CUuuid gpu_uuid(const topology::Server& server, int gpu);

}  // namespace braid::emulator
