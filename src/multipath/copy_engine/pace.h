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

/// Of a relay buffer, and so of a slice that is relayed: five make 20 MB a GPU, as the paper's (MMA
/// section 3.4.3). Measured on 4xH200: 4 MB 193.9 / 155.4 GB/s, 1 MB 171 / 136.
inline constexpr uint64_t kRelayBufferBytes = uint64_t{4} << 20;

/// The thread's pause between two steps, asleep: 0.5 to 0.6 of a core while copies flow over two
/// links (2xH200), where spinning took a whole one and was no faster.
inline constexpr uint64_t kStepNs = 10'000;

/// One direction's. Microseconds; bytes a microsecond.
struct SliceCosts {
  double bytes_per_us = 1;  ///< of one link
  double gap_us = 0;        ///< between two slices on a link
  double entry_us = 0;      ///< of a segment, beside its bytes
  /// What the thread spends on a hop. Measured on 2xH200: 1.2 to 1.5 us for the copy, 0.3 for the
  /// event and 0.75 for the number behind it.
  double issue_us = 2.5;
};
using PaceCosts = std::array<SliceCosts, 2>;  // by direction

SliceCosts slice_costs(const DirectionCosts& costs);
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

  /// About how many slices the rest is cut into, and what the last of them takes of its link: for
  /// the cost model.
  double slices(const Remainder& rest) const;
  double last_slice_us(const Remainder& rest) const;

  /// What a slice is expected to take of its link.
  double link_us(const Remainder& rest, uint64_t slice_bytes) const;

  /// A link is given its next slice this long before it has carried those it has: until then the
  /// thread sees where it stands, and issues a slice for every other link.
  double lead_us(const Remainder& rest, uint64_t slice_bytes) const;

 private:
  const SliceCosts& of(Direction direction) const { return costs_[static_cast<size_t>(direction)]; }
  /// Slices take `longest_us`, until that is more than the share of what is left; then the share,
  /// and at the end `shortest_us`.
  struct Rule {
    double longest_us;
    double shortest_us;
    double shares;  ///< 1: they do not shrink
  };
  Rule rule_for(const Remainder& rest) const;
  double us_per_byte(const Remainder& rest) const;
  double round_us(const Remainder& rest) const;

  PaceCosts costs_;
  uint64_t asked_bytes_;
  uint64_t buffer_bytes_;
};

}  // namespace braid::multipath::copy_engine
