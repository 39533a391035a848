// Copies by braid's library: over every link of the server (include/braid/braid.h).
#pragma once

#include <cstddef>
#include <vector>

#include "braid/braid.h"
#include "kv/copier.h"

namespace braid::kv {

class BraidCopier final : public Copier {
 public:
  /// `engine` is the caller's, and outlives this.
  explicit BraidCopier(braid_engine* engine) : engine_(engine) {}
  Status copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) override;

 private:
  braid_engine* engine_;
  std::vector<void*> destinations_;
  std::vector<const void*> sources_;
  std::vector<size_t> sizes_bytes_;
};

}  // namespace braid::kv
