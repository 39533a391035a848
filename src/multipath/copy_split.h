// How copy engines share a contiguous copy: the bytes for the target's own link and for each
// relay's, and the chunks in which a relay stages its share. The whole split is decided before
// anything is enqueued; no byte changes its path later. Pure, allocates nothing.
//
// A relay's copy engine reaches mapped and pooled memory of another GPU directly: one copy carries
// its whole share. It reaches plain memory (cuMemAlloc) only from its own GPU's memory, since the
// driver sends a copy between host memory and plain memory over the link of the GPU where the plain
// memory lies. So the relay stages: from host memory to its buffer, then over NVLink, chunk by
// chunk in two channels that take turns (docs/measurements, 2026-11-22-2xH200-probes).
#pragma once

#include <array>
#include <cstdint>

#include "cuda/kernels/pull.h"

namespace braid::multipath {

struct DirectionCosts;

struct CopySplitRequest {
  uint64_t size_bytes = 0;
  int paths = 1;              ///< number of paths, with the direct one
  int far_relays = 0;         ///< how many of the last relays are on another socket than the target
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

/// What a path carries while all of the request's are at work. 0: the direct one.
double path_bytes_per_us(const DirectionCosts& costs, const CopySplitRequest& request, int path);

/// The most operations that a share of `relay_bytes` puts into each of `channels`.
uint32_t ops_of(uint64_t relay_bytes, uint64_t chunk_bytes, size_t channels);

}  // namespace braid::multipath
