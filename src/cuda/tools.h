// Debuggers and profilers that run this process, and that GPUs which work together do not bear.
#pragma once

#include <string>

#include "cuda/driver.h"

namespace braid::cuda {

/// Why no GPU may carry another one's bytes under the tool that runs this process. Empty: there is
/// no such tool. A tool that attaches later is not foreseen.
std::string reason_to_stay_native(const Driver& driver);

}  // namespace braid::cuda
