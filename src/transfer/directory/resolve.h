// From a name to what its engine says of itself. Blocks the caller's thread until the limit at
// most, and touches no engine.
#pragma once

#include <cstdint>
#include <string>

#include "fabric/seal.h"
#include "transfer/description.h"
#include "transfer/directory/names.h"

namespace braid::transfer {

/// `end_ns` of CLOCK_MONOTONIC. `store`: the URL of one, for bare names that nobody has on this
/// host; empty: none.
Result<Description> resolve(const Name& name, const std::string& store,
                            const fabric::Secret& secret, uint64_t end_ns);

}  // namespace braid::transfer
