// `braid segments` without a name: the names that can be opened from this host.
#pragma once

#include <string>

#include "base/status.h"
#include "fabric/seal.h"
#include "tools/watch.h"

namespace braid::tools {

/// The names of this user's engines on this host, and those of the store (its URL; empty: none).
/// Each engine is asked whether it answers.
Result<View> view_names(const std::string& store, const fabric::Secret& secret);

}  // namespace braid::tools
