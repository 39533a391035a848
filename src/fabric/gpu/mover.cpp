#include "fabric/gpu/mover.h"

namespace braid::fabric::gpu {

void Ended::add(std::span<const Copy> copies) {
  const std::lock_guard lock(mutex_);
  copies_.insert(copies_.end(), copies.begin(), copies.end());
  has_some_.store(true, std::memory_order_release);
}

bool Ended::take(std::vector<Copy>& into) {
  if (!has_some_.load(std::memory_order_acquire)) return false;
  const std::lock_guard lock(mutex_);
  into.insert(into.end(), copies_.begin(), copies_.end());
  copies_.clear();
  has_some_.store(false, std::memory_order_relaxed);
  return true;
}

/// Copies that go on where the one before has ended are one: a call costs as much as moving a
/// megabyte between GPUs.
CUresult Mover::enqueue(Way, std::span<const Copy> copies, CUstream stream) {
  for (size_t i = 0; i < copies.size();) {
    const Copy& first = copies[i];
    uint64_t size_bytes = first.size_bytes;
    for (++i; i < copies.size() && copies[i].to == first.to + size_bytes &&
              copies[i].from == first.from + size_bytes;
         ++i)
      size_bytes += copies[i].size_bytes;
    const CUresult result = driver_.cuMemcpyAsync(first.to, first.from, size_bytes, stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace braid::fabric::gpu
