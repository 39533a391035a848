// How copy engines share a contiguous copy: how many bytes go over the target's own link and how
// many over each relay's, and in which chunks a relay stages them. Decided whole before anything is
// enqueued; nothing is moved between paths later. Pure, allocates nothing.
//
// A relay's copy engine reaches mapped and pooled memory of another GPU by itself: one copy carries
// its whole share. Plain memory (cuMemAlloc) it reaches only from its own GPU's memory, since the
// driver sends a copy between host memory and plain memory over the link of the GPU where that
// lies. So it stages: host memory to a buffer of the relay's, and on over NVLink, chunk by chunk in
// two channels that take turns (docs/measurements, 2026-11-22-2xH200-probes).
#pragma once

#include <array>
#include <cstdint>

#include "cuda/kernels/pull.h"

namespace braid::multipath {

struct DirectionCosts;

struct CopySplitRequest {
  uint64_t size_bytes = 0;
  int paths = 1;              ///< to be taken, the direct one included
  int far_relays = 0;         ///< the last so many of them: of another socket than the target
  bool is_staged = true;      ///< plain memory
  uint64_t buffer_bytes = 0;  ///< of a channel
};

struct CopySplit {
  uint64_t direct_bytes = 0;
  std::array<uint64_t, cuda::kMaxPaths> relay_bytes{};  ///< by relay, in the order of paths
  uint64_t chunk_bytes = 0;                             ///< of a relay's share; the first is half
  double expected_us = 0;
};

/// The shares with which all paths are expected to end together. A relay that would begin too late
/// to carry anything has a share of 0.
CopySplit split_copy(const DirectionCosts& costs, const CopySplitRequest& request);

/// Operations that a share of so many bytes puts into each of `channels`, at most.
uint32_t ops_of(uint64_t relay_bytes, uint64_t chunk_bytes, size_t channels);

}  // namespace braid::multipath
