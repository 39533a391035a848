#include "multipath/slice_lists.h"

#include <algorithm>

namespace braid::multipath {
namespace {

// A slice with less room than this is closed: a few bytes more are not worth a piece.
constexpr uint32_t kSmallestRoomBytes = 4 << 10;

// A GPU has read these lists last, so that they may have left the caches. They come back while the
// ones before them are written.
constexpr size_t kListsAhead = 16;

uint32_t smallest_room(uint32_t slice_bytes) {
  return std::min(kSmallestRoomBytes, slice_bytes / 2);
}

// The counts of the list at hand stay out of memory until it ends.
class Filler {
 public:
  Filler(std::span<cuda::SliceList> lists, uint32_t slice_bytes)
      : first_(lists.data()),
        next_(lists.data()),
        slice_bytes_(slice_bytes),
        least_room_(smallest_room(slice_bytes)) {}

  void add(uint64_t source, uint64_t destination, uint64_t size_bytes) {
    differing_ |= source ^ destination;
    while (size_bytes != 0) {
      if (piece_count_ == cuda::kPiecesPerSlice || room_ < least_room_) open();
      const auto taken = static_cast<uint32_t>(piece_size(destination, size_bytes));
      list_->pieces[piece_count_++] = {source, destination, taken, 0};
      room_ -= taken;
      source += taken;
      destination += taken;
      size_bytes -= taken;
    }
  }

  /// Call it once, after the last segment.
  SliceLists end() {
    close();
    return {static_cast<uint32_t>(next_ - first_), (differing_ & 15) == 0};
  }

 private:
  void open() {
    close();
    list_ = next_++;
    __builtin_prefetch(list_ + kListsAhead);
    piece_count_ = 0;
    room_ = slice_bytes_;
  }

  void close() {
    if (list_ == nullptr) return;
    list_->piece_count = piece_count_;
    list_->size_bytes = slice_bytes_ - room_;
  }

  // What is left of the segment goes on at a 16-byte boundary of its destination.
  uint64_t piece_size(uint64_t destination, uint64_t size_bytes) const {
    if (size_bytes <= room_) return size_bytes;
    const uint64_t end = (destination + room_) & ~uint64_t{15};
    return end > destination ? end - destination : room_;
  }

  const cuda::SliceList* const first_;
  cuda::SliceList* next_;
  const uint32_t slice_bytes_;
  const uint32_t least_room_;
  cuda::SliceList* list_ = nullptr;  // the one at hand; null: none yet, and it has no room
  uint32_t piece_count_ = 0;
  uint32_t room_ = 0;
  uint64_t differing_ = 0;  // bits in which a source and its destination differ
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
  return filler.end();
}

}  // namespace braid::multipath
