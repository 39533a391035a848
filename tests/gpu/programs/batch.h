// Batches of copies, through the driver's or the runtime's call.
#pragma once

#include <cuda.h>

#include <numeric>
#include <vector>

#include "program.h"

namespace program {

/// The copies of a batch. `Pointer` is what the API calls an address: CUdeviceptr or void*.
template <typename Pointer>
struct Batch {
  std::vector<Pointer> to, from;
  std::vector<size_t> sizes;

  void add(Pointer target, Pointer source, size_t size_bytes) {
    to.push_back(target);
    from.push_back(source);
    sizes.push_back(size_bytes);
  }
};

/// Hands a batch to `call`, which adds the stream. The parameters are those of the toolkit that the
/// program is built with. One attribute stands for all copies, as callers do it.
template <typename Pointer, typename Attributes, typename Call>
auto enqueue_batch(Batch<Pointer>& batch, Attributes attributes, Call call) {
  copied(Kind::kPinned, std::accumulate(batch.sizes.begin(), batch.sizes.end(), uint64_t{0}));
  size_t first_copy_of_attributes = 0;
#if CUDA_VERSION >= 13000
  return call(batch.to.data(), batch.from.data(), batch.sizes.data(), batch.sizes.size(),
              &attributes, &first_copy_of_attributes, 1);
#else
  size_t failed = 0;
  return call(batch.to.data(), batch.from.data(), batch.sizes.data(), batch.sizes.size(),
              &attributes, &first_copy_of_attributes, 1, &failed);
#endif
}

}  // namespace program
