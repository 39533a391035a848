// How large a slice is and how many a link has under way: from what slices cost on this server, the
// paths that can carry the transfer, and how much of it is left ("dynamically adjusts", MMA section
// 3.4.1). Pure: no driver, no clock, no state, no memory.
//
//   too small   the gap between two slices, and the thread that issues them, are what takes time
//   too large   paths that differ in speed end apart, and an urgent transfer waits for bulk slices
//   too few     the link idles until the thread has seen one land and issued the next
#pragma once

#include <array>
#include <cstdint>

#include "multipath/cost_model.h"
#include "multipath/transfer.h"

namespace braid::multipath::copy_engine {

/// One direction's. Microseconds; bytes a microsecond.
struct SliceCosts {
  double bytes_per_us = 1;  ///< of one link
  double gap_us = 0;        ///< between two slices on a link
  double entry_us = 0;      ///< of a segment, beside its bytes
  double issue_us = 0;      ///< what the thread spends on a hop
};
using PaceCosts = std::array<SliceCosts, 2>;  // by direction

PaceCosts pace_costs(const CostModel& model);

/// A transfer at the moment when a slice of it is cut.
struct Remainder {
  Direction direction = Direction::kHostToDevice;
  uint64_t left_bytes = 0;
  uint64_t piece_bytes = 0;  ///< of a batch's pieces, on average; 0: it is one piece
  int links = 1;             ///< that can carry it now
  int busy_links = 0;        ///< that have direct work of their own first
  bool is_direct = true;     ///< this slice
};

class Pace {
 public:
  /// Slices under way on one link, however slow it is: the last ones of a transfer must not pile up
  /// on one. Measured on 4xH200, 4 MB slices, one thread: 193.9 GB/s with 3, 163.9 with 1.
  static constexpr int kMostDepth = 3;

  /// `asked_bytes`: the user's word for every slice; 0: none. `buffer_bytes` bound a relayed one.
  Pace(const PaceCosts& costs, uint64_t asked_bytes, uint64_t buffer_bytes);

  uint64_t slice_bytes(const Remainder& rest) const;

  /// What a slice is expected to take of its link.
  double link_us(const Remainder& rest, uint64_t slice_bytes) const;

  /// A link is given its next slice this long before it has carried those it has: until then the
  /// thread sees where it stands, and issues a slice for every other link.
  double lead_us(const Remainder& rest, uint64_t slice_bytes) const;

 private:
  const SliceCosts& of(Direction direction) const { return costs_[static_cast<size_t>(direction)]; }
  double us_per_byte(const Remainder& rest) const;
  double round_us(const Remainder& rest) const;

  PaceCosts costs_;
  uint64_t asked_bytes_;
  uint64_t buffer_bytes_;
};

}  // namespace braid::multipath::copy_engine
