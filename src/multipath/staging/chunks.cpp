#include "multipath/staging/chunks.h"

#include <algorithm>

namespace braid::multipath::staging {
namespace {

constexpr uint64_t kFirstBytes = uint64_t{1} << 20;
constexpr int kDoublings = 3;
static_assert(kFirstBytes << kDoublings == kSlotBytes);

// Chunks begin at whole pages of the slot's and the program's memory alike, where the program's
// memory does.
constexpr uint64_t kPageBytes = 4096;

}  // namespace

uint64_t chunk_bytes(Direction direction, int index, uint64_t left_bytes) {
  uint64_t size_bytes = kFirstBytes << std::min(index, kDoublings);
  if (direction == Direction::kDeviceToHost)
    size_bytes = std::clamp(left_bytes / 2 / kPageBytes * kPageBytes, kFirstBytes, size_bytes);
  return std::min(size_bytes, left_bytes);
}

}  // namespace braid::multipath::staging
