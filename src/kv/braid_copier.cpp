#include "kv/braid_copier.h"

namespace braid::kv {

Status BraidCopier::copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) {
  destinations_.clear();
  sources_.clear();
  sizes_bytes_.clear();
  for (const library::Copy& copy : copies) {
    destinations_.push_back(reinterpret_cast<void*>(copy.destination));
    sources_.push_back(reinterpret_cast<const void*>(copy.source));
    sizes_bytes_.push_back(copy.size_bytes);
  }
  const int priority = urgency == Urgency::kUrgent ? BRAID_PRIORITY_URGENT : BRAID_PRIORITY_BULK;
  if (braid_copy_batch(engine_, destinations_.data(), sources_.data(), sizes_bytes_.data(),
                       copies.size(), stream, priority, nullptr) == BRAID_OK)
    return {};
  return Status::error(braid_last_error(), {}, braid_last_cuda_error());
}

}  // namespace braid::kv
