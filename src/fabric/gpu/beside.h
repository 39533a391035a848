// Copies that do not touch the host memory that they name, since another context's lane may be
// unpinning it now (Copy::goes_beside). The driver copies from or to memory of this object's own,
// and the CPU copies the rest of the way, which may always touch both.
#pragma once

#include <cstddef>
#include <vector>

#include "fabric/gpu/mover.h"

namespace braid::fabric::gpu {

class Beside {
 public:
  /// Replaces the host end of each copy that goes beside.
  void replace(Way way, std::vector<Copy>& copies);
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
