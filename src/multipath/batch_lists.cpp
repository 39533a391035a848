#include "multipath/batch_lists.h"

#include "multipath/slice_lists.h"
#include "multipath/slice_size.h"

namespace braid::multipath {

std::span<cuda::SliceList> take_lists(ListRing& ring, const Batch& batch,
                                      uint64_t asked_slice_bytes, TransferState& state) {
  SlicedBytes& bytes = state.bytes;
  bytes.slice_bytes = batch_slice_bytes_for(bytes.size_bytes, asked_slice_bytes);
  const auto bound = [&] {
    return slice_list_bound(batch.segments().size(), bytes.size_bytes, bytes.slice_bytes);
  };
  while (bound() > ListRing::kLists && bytes.slice_bytes < kLargestBatchSliceBytes)
    bytes.slice_bytes *= 2;
  const std::span<cuda::SliceList> room = ring.reserve(bound());
  if (!room.empty()) ring.commit(room.size(), state);
  return room;
}

void write_lists(const Batch& batch, std::span<cuda::SliceList> room, SlicedBytes& bytes,
                 uint64_t skip_bytes) {
  const SliceLists filled = fill_slice_lists(batch, bytes.slice_bytes, room, skip_bytes);
  bytes.lists = reinterpret_cast<uint64_t>(room.data());
  bytes.slice_count = filled.count;
  bytes.segment_count = static_cast<uint32_t>(batch.segments().size());
  bytes.aligned_alike = filled.aligned_alike;
}

}  // namespace braid::multipath
