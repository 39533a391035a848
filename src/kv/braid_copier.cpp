#include "kv/braid_copier.h"

namespace braid::kv {

// The lists never shrink: what a vector grows by, it clears first.
void BraidCopier::list(std::span<const library::Copy> copies) {
  if (sizes_bytes_.size() < copies.size()) {
    destinations_.resize(copies.size());
    sources_.resize(copies.size());
    sizes_bytes_.resize(copies.size());
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    destinations_[i] = reinterpret_cast<void*>(copies[i].destination);
    sources_[i] = reinterpret_cast<const void*>(copies[i].source);
    sizes_bytes_[i] = copies[i].size_bytes;
  }
}

Status BraidCopier::copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) {
  list(copies);
  const int priority = urgency == Urgency::kUrgent ? BRAID_PRIORITY_URGENT : BRAID_PRIORITY_BULK;
  braid_outcome outcome{sizeof(braid_outcome), 0, 0, ""};
  if (braid_.copy_batch(braid_.engine, destinations_.data(), sources_.data(), sizes_bytes_.data(),
                        copies.size(), stream, priority, &outcome) != BRAID_OK)
    return Status::of(BRAID_ERROR_CUDA, braid_.last_error(), braid_.last_cuda_error());
  carried_.accelerated_bytes += outcome.accelerated_bytes;
  carried_.native_bytes += outcome.native_bytes;
  return {};
}

}  // namespace braid::kv
