#include "multipath/slice_lists.h"

#include <algorithm>

namespace braid::multipath {
namespace {

// A slice with less room than this is closed: a few bytes more are not worth a piece.
constexpr uint32_t kSmallestRoomBytes = 4 << 10;

uint32_t smallest_room(uint32_t slice_bytes) {
  return std::min(kSmallestRoomBytes, slice_bytes / 2);
}

class Filler {
 public:
  Filler(std::span<cuda::SliceList> lists, uint32_t slice_bytes)
      : lists_(lists), slice_bytes_(slice_bytes) {}

  void add(uint64_t source, uint64_t destination, uint64_t size_bytes) {
    if (((source ^ destination) & 15) != 0) filled_.aligned_alike = false;
    while (size_bytes != 0) {
      if (filled_.count == 0 || is_full(lists_[filled_.count - 1])) open();
      const uint64_t taken = piece_size(destination, size_bytes);
      append(source, destination, static_cast<uint32_t>(taken));
      source += taken;
      destination += taken;
      size_bytes -= taken;
    }
  }

  const SliceLists& filled() const { return filled_; }

 private:
  uint32_t room() const { return slice_bytes_ - lists_[filled_.count - 1].size_bytes; }

  bool is_full(const cuda::SliceList& list) const {
    return list.piece_count == cuda::kPiecesPerSlice || room() < smallest_room(slice_bytes_);
  }

  void open() {
    cuda::SliceList& list = lists_[filled_.count++];
    list.piece_count = 0;
    list.size_bytes = 0;
  }

  // What is left of the segment goes on at a 16-byte boundary of its destination.
  uint64_t piece_size(uint64_t destination, uint64_t size_bytes) const {
    if (size_bytes <= room()) return size_bytes;
    const uint64_t end = (destination + room()) & ~uint64_t{15};
    return end > destination ? end - destination : room();
  }

  void append(uint64_t source, uint64_t destination, uint32_t size_bytes) {
    cuda::SliceList& list = lists_[filled_.count - 1];
    list.sources[list.piece_count] = source;
    list.destinations[list.piece_count] = destination;
    list.piece_bytes[list.piece_count] = size_bytes;
    ++list.piece_count;
    list.size_bytes += size_bytes;
  }

  std::span<cuda::SliceList> lists_;
  uint32_t slice_bytes_;
  SliceLists filled_;
};

}  // namespace

// A list ends when it holds all its pieces or most of its bytes; a cut adds a piece, and cuts are
// no more than lists that end for their bytes.
size_t slice_list_bound(size_t segments, uint64_t size_bytes, uint32_t slice_bytes) {
  const uint64_t least = slice_bytes - smallest_room(slice_bytes);
  const uint64_t by_bytes = size_bytes / least + 1;
  return segments / cuda::kPiecesPerSlice + by_bytes + by_bytes / cuda::kPiecesPerSlice + 2;
}

SliceLists fill_slice_lists(const Batch& batch, uint32_t slice_bytes,
                            std::span<cuda::SliceList> lists, uint64_t skip_bytes) {
  Filler filler(lists, slice_bytes);
  const bool to_device = batch.direction == Direction::kHostToDevice;
  const std::span<const Segment> segments = batch.segments();
  for (size_t i = 0; i < segments.size();) {
    const Segment& first = segments[i];
    const auto host = reinterpret_cast<uint64_t>(first.host);
    uint64_t size_bytes = first.size_bytes;
    while (++i < segments.size()) {
      const Segment& next = segments[i];
      if (reinterpret_cast<uint64_t>(next.host) != host + size_bytes ||
          next.device != first.device + size_bytes)
        break;
      size_bytes += next.size_bytes;
    }
    const uint64_t skipped = std::min(skip_bytes, size_bytes);
    skip_bytes -= skipped;
    filler.add((to_device ? host : first.device) + skipped,
               (to_device ? first.device : host) + skipped, size_bytes - skipped);
  }
  return filler.filled();
}

}  // namespace braid::multipath
