// Device memory that is zero for every stream. cuMemsetD8 returns before it has been carried out,
// in the order of the legacy stream, which braid's streams do not follow: a kernel that counts
// would have its counts cleared under it.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "cuda/driver.h"

namespace braid::cuda {

/// In the current context; cuMemFree gives it back. Blocks, up to a limit (bounded_wait.h). `what`
/// names it in errors.
Result<CUdeviceptr> allocate_zeroed(const Driver& driver, size_t size_bytes,
                                    const std::string& what);

}  // namespace braid::cuda
