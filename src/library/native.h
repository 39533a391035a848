// The driver's own copies, for what the engine leaves to it.
#pragma once

#include <span>
#include <vector>

#include "cuda/driver.h"
#include "library/copy_list.h"

namespace braid::library {

/// The arrays that cuMemcpyBatchAsync takes; kept by a thread from call to call.
struct NativeArrays {
  std::vector<CUdeviceptr> destinations;
  std::vector<CUdeviceptr> sources;
  std::vector<size_t> sizes_bytes;
};

/// Puts `copies` into `stream`: in one call where the driver has one for it and `may_batch` says
/// that it takes this memory and this stream, else one by one.
CUresult copy_natively(const cuda::Driver& driver, std::span<const Copy> copies, CUstream stream,
                       bool may_batch, NativeArrays& arrays);

}  // namespace braid::library
