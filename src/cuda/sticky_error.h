// Whether an answer of the driver's says that the context asked about has come to an end by a fault
// in it, which every later call there returns.
#pragma once

#include <cuda.h>

namespace braid::cuda {

/// Of a query in a context that was fine before. Not what the driver answers when the process exits
/// or when somebody has ended the context: that is no fault, and who ends it says so.
inline bool is_sticky(CUresult answer) {
  switch (answer) {
    case CUDA_SUCCESS:
    case CUDA_ERROR_NOT_READY:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_INVALID_HANDLE: return false;
    default: return true;
  }
}

}  // namespace braid::cuda
