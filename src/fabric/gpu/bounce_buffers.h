// Bounce buffers for copies whose host memory another context's lane may be unpinning now
// (Copy::uses_bounce_buffer). The driver copies from or to memory of this object, and the CPU
// copies the rest of the way, which may always touch both.
#pragma once

#include <cstddef>
#include <vector>

#include "fabric/gpu/mover.h"

namespace braid::fabric::gpu {

class BounceBuffers {
 public:
  /// Replaces the host end of each copy that uses one.
  void replace(CopyKind kind, std::vector<Copy>& copies);
  /// The copies have ended well: those to the host get there.
  void bring_back() const;

 private:
  struct Part {
    std::vector<std::byte> bytes;
    std::byte* to = nullptr;  // null: to a GPU
  };
  std::vector<Part> parts_;
};

}  // namespace braid::fabric::gpu
