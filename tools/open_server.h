// Opens the driver that a command works on: the machine's own, or the emulated one with a profile.
#pragma once

#include <string>

#include "base/status.h"
#include "cuda/driver.h"

namespace braid::tools {

/// `profile` as find_profile takes it; empty: the machine's own driver. cuInit has been called, and
/// there is at least one GPU. Errors say the remedy.
Result<cuda::Driver> open_server(const std::string& profile);

}  // namespace braid::tools
