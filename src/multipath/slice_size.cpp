#include "multipath/slice_size.h"

#include <algorithm>

namespace braid::multipath {
namespace {

constexpr uint64_t kMaxSlices = uint64_t{1} << 24;
constexpr uint64_t kMaxBatchSlices = 1024;

}  // namespace

uint32_t slice_bytes_for(uint64_t size_bytes, uint64_t asked_bytes) {
  const uint64_t wanted =
      asked_bytes != 0 ? (asked_bytes + 15) & ~uint64_t{15} : kDefaultSliceBytes;
  const uint64_t needed = (size_bytes / kMaxSlices + 15) & ~uint64_t{15};
  return static_cast<uint32_t>(std::clamp<uint64_t>(std::max(wanted, needed), 16, 1u << 30));
}

uint32_t batch_slice_bytes_for(uint64_t size_bytes, uint64_t asked_bytes) {
  uint32_t slice_bytes = slice_bytes_for(size_bytes, asked_bytes);
  while (asked_bytes == 0 && slice_bytes < kLargestBatchSliceBytes &&
         size_bytes / slice_bytes > kMaxBatchSlices)
    slice_bytes *= 2;
  return slice_bytes;
}

}  // namespace braid::multipath
