// What copies cost on a server: the parameters of the cost model (cost_model.h). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "multipath/transfer.h"

namespace braid::multipath {

/// One direction's parameters. Times are microseconds; a rate is bytes a microsecond (1e3 is
/// 1 GB/s). cost_rows() says where the defaults come from.
struct DirectionCosts {
  double native_start_us = 0;
  double native_bytes_per_us = 1;
  double native_entry_us = 0;        ///< of a batch, beside its bytes
  double native_small_entry_us = 0;  ///< the same for entries up to native_small_entry_bytes
  double native_small_entry_bytes = 0;
  double kernel_start_us = 0;   ///< of a transfer on one path: enqueue, start, gate
  double kernel_launch_us = 0;  ///< each path begins this much after the one before
  double kernel_bytes_per_us = 1;
  double kernel_ceiling_bytes_per_us = 1;       ///< all paths together
  double kernel_cold_us = 0;                    ///< cold relays begin this much later
  double kernel_cold_ceiling_bytes_per_us = 1;  ///< their clocks are low as well
  double kernel_segment_us = 0;       ///< of a batch, beside its bytes, on the path of the segment
  double engine_start_us = 0;         ///< until the first relay begins, if it need not stage
  double engine_staged_start_us = 0;  ///< until the first relay begins, if it stages
  double engine_issue_us = 0;         ///< each further relay begins this much later
  double engine_bytes_per_us = 1;
  double engine_ceiling_bytes_per_us = 1;      ///< all paths together
  double engine_far_ceiling_bytes_per_us = 1;  ///< all relays of the other socket together
  double engine_hop_bytes_per_us = 1;          ///< of a staged chunk, from GPU to GPU

  bool operator==(const DirectionCosts&) const = default;
};

struct CostModel {
  std::array<DirectionCosts, 2> by_direction{};  ///< index: Direction

  const DirectionCosts& of(Direction direction) const {
    return by_direction[static_cast<size_t>(direction)];
  }
  DirectionCosts& of(Direction direction) { return by_direction[static_cast<size_t>(direction)]; }
  bool operator==(const CostModel&) const = default;
};

/// The costs of a server that is not tuned: measured on 4xH200 and 2xH200.
const CostModel& default_costs();

/// A parameter by name: "native_start_us", ...
struct CostRow {
  const char* name;
  double DirectionCosts::*value;
  bool is_rate;        ///< must be above zero
  const char* source;  ///< of the default
};
std::span<const CostRow> cost_rows();

}  // namespace braid::multipath
