// What a transfer consists of, kept by the mover until the last byte has landed: the batch's
// segments, those that continue each other merged. Pure: no driver, no clock. Memory is taken once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "multipath/transfer.h"

namespace braid::multipath::copy_engine {

/// A segment, and where its first byte lies among all bytes of the transfer.
struct Piece {
  uint64_t offset = 0;
  uint64_t host = 0;  ///< addresses
  uint64_t device = 0;
  uint64_t size_bytes = 0;
};

/// Room for the pieces of all transfers in flight. Each has one contiguous span; they come back in
/// any order. Not thread-safe.
class PiecePool {
 public:
  /// `spans`: at most so many at once.
  PiecePool(size_t pieces, size_t spans);

  /// The segments as pieces, without empty ones, neighbours merged where both ends continue. Empty
  /// when there is no room, or nothing to carry. Takes no memory.
  std::span<Piece> take(std::span<const Segment> segments);
  void give_back(std::span<Piece> pieces);

 private:
  struct Range {
    size_t begin;
    size_t end;
  };
  std::vector<Piece> pieces_;
  std::vector<Range> used_;  // by begin
};

/// How many pieces the segments make.
size_t count_pieces(std::span<const Segment> segments);

}  // namespace braid::multipath::copy_engine
