#include "multipath/copy_engine/pieces.h"

#include <algorithm>

namespace braid::multipath::copy_engine {
namespace {

// Calls `found` for every merged piece.
template <typename Found>
void merge(std::span<const Segment> segments, Found&& found) {
  Piece piece;
  for (const Segment& segment : segments) {
    if (segment.size_bytes == 0) continue;
    const auto host = reinterpret_cast<uint64_t>(segment.host);
    if (piece.size_bytes != 0 && piece.host + piece.size_bytes == host &&
        piece.device + piece.size_bytes == segment.device) {
      piece.size_bytes += segment.size_bytes;
      continue;
    }
    if (piece.size_bytes != 0) found(piece);
    piece = {piece.offset + piece.size_bytes, host, segment.device, segment.size_bytes};
  }
  if (piece.size_bytes != 0) found(piece);
}

}  // namespace

size_t count_pieces(std::span<const Segment> segments) {
  size_t count = 0;
  merge(segments, [&](const Piece&) { ++count; });
  return count;
}

PiecePool::PiecePool(size_t pieces, size_t spans) : pieces_(pieces) { used_.reserve(spans); }

std::span<Piece> PiecePool::take(std::span<const Segment> segments) {
  const size_t count = count_pieces(segments);
  if (count == 0 || used_.size() == used_.capacity()) return {};
  size_t begin = 0;
  auto next = used_.begin();
  while (next != used_.end() && next->begin - begin < count) begin = (next++)->end;
  if (next == used_.end() && pieces_.size() - begin < count) return {};
  used_.insert(next, {begin, begin + count});
  size_t at = begin;
  merge(segments, [&](const Piece& piece) { pieces_[at++] = piece; });
  return std::span(pieces_).subspan(begin, count);
}

void PiecePool::give_back(std::span<Piece> pieces) {
  const auto begin = static_cast<size_t>(pieces.data() - pieces_.data());
  std::erase_if(used_, [&](const Range& range) { return range.begin == begin; });
}

}  // namespace braid::multipath::copy_engine
