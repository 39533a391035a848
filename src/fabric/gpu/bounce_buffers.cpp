#include "fabric/gpu/bounce_buffers.h"

#include <cstring>
#include <utility>

namespace braid::fabric::gpu {

void BounceBuffers::replace(CopyKind kind, std::vector<Copy>& copies) {
  if (kind == CopyKind::kBetweenGpus) return;
  for (Copy& copy : copies) {
    if (!copy.uses_bounce_buffer) continue;
    const bool is_to_host = kind == CopyKind::kToHost;
    CUdeviceptr& end = is_to_host ? copy.to : copy.from;
    auto* host = reinterpret_cast<std::byte*>(end);
    Part part{std::vector<std::byte>(copy.size_bytes), is_to_host ? host : nullptr};
    if (!is_to_host) std::memcpy(part.bytes.data(), host, copy.size_bytes);
    end = reinterpret_cast<CUdeviceptr>(part.bytes.data());
    parts_.push_back(std::move(part));
  }
}

void BounceBuffers::bring_back() const {
  for (const Part& part : parts_)
    if (part.to != nullptr) std::memcpy(part.to, part.bytes.data(), part.bytes.size());
}

}  // namespace braid::fabric::gpu
