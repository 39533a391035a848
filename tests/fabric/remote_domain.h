// The target's end of a wire, which lies in another process: its domain and its memory.
#pragma once

#include <memory>
#include <string>

#include "fabric/other_process.h"
#include "fabric/places.h"
#include "fabric/wires.h"

namespace braid::fabric::test {

/// A domain of the other process, which only receives. Memory is named by its addresses there.
std::unique_ptr<Domain> open_remote_domain(std::shared_ptr<OtherProcess> process,
                                           const std::string& provider);

/// Memory of the other process. It stays until Call::kFreeAll: a peer may have it mapped, which
/// holds a removed region until it is drained.
std::unique_ptr<Memory> remote_memory(std::shared_ptr<OtherProcess> process, Place place,
                                      size_t size_bytes);

}  // namespace braid::fabric::test
