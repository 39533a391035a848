// The faults that an emulated server injects (docs/emulator.md, "Faults"), from a profile or the
// environment variable BRAID_FAULTS. They are read and checked here, together with the profile; the
// emulator carries them out.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topology/json_reader.h"
#include "topology/server.h"

namespace braid::topology {

/// Times are microseconds since cuInit.
struct Faults {
  struct Call {
    std::string symbol;  ///< "cuMemAlloc_v2"
    int nth;             ///< of its calls, from 1
    std::string error;   ///< "CUDA_ERROR_OUT_OF_MEMORY"
  };
  struct SlowLink {
    int link;  ///< index into Server::links
    double factor;
    double from_us;
    double to_us;  ///< infinite: for good
  };
  struct BusyGpu {
    int gpu;
    double from_us;
    double to_us;
  };
  std::vector<Call> calls;
  std::vector<SlowLink> links;
  std::vector<BusyGpu> busy;
  bool contexts_fail_alone = false;
  int contexts_take_ms = 0;
  int kernels_take_local_bytes = 0;
};

/// Adds the node's faults for this server. Unknown names are refused, with the nearest known ones.
void read_faults(const JsonNode& node, const Server& server, Faults& faults);

/// The same from JSON text, which may be empty; `origin` names it in errors.
Status add_faults(std::string_view json, const std::string& origin, const Server& server,
                  Faults& faults);

}  // namespace braid::topology
