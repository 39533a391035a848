#include "kv/copier.h"

#include <string>

namespace braid::kv {

Status NativeCopier::copy(std::span<const library::Copy> copies, CUstream stream, Urgency) {
  return driver_.check(library::copy_natively(driver_, copies, stream, true, arrays_),
                       "a batch of " + std::to_string(copies.size()) + " copies");
}

}  // namespace braid::kv
