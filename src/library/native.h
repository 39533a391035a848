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

/// What the driver is to do with a batch.
enum class NativeBatch {
  kNone,           ///< it does not take this memory or this stream: one copy after the other
  kAsUsual,        ///< what it does by default
  kByCopyEngines,  ///< a program's kernels need every multiprocessor; braid, under `braid run`,
                   ///< minds it too
};

/// Puts `copies` into `stream`: in one call where the driver has one for it, else one by one.
CUresult copy_natively(const cuda::Driver& driver, std::span<const Copy> copies, CUstream stream,
                       NativeBatch batch, NativeArrays& arrays);

}  // namespace braid::library
