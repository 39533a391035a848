// The options of braid_open as the engine's: one table for the command, the preload library and
// programs (base/options.h).
#pragma once

#include "base/options.h"
#include "library/error.h"

namespace braid::library {

/// What `given` (null: nothing) does not list comes from the environment, and is the table's
/// default else; only BRAID_OPENING is `wait`. Fails for a struct that base/sized_struct.h does not
/// read, and for names and values that the table does not take.
Error read_settings(const braid_options* given, Options& options);

}  // namespace braid::library
