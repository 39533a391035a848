// Device memory of braid's own that is zero for whichever stream looks at it first.
#pragma once

#include <string>

#include "base/status.h"
#include "cuda/driver.h"

namespace braid::cuda {

/// In the current context; freed by cuMemFree. Waits a limited time. Clears in a stream of its own:
/// in the default stream it would come behind the program's work, long after braid's kernels.
/// `what` names the memory in errors.
Result<CUdeviceptr> allocate_cleared(const Driver& driver, size_t size_bytes,
                                     const std::string& what);

}  // namespace braid::cuda
