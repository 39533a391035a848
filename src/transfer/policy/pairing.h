// Which NIC of the peer a NIC of ours writes to: pure functions. One to one, so that no two of ours
// meet at one of theirs; how, depends on what is known.
// Source: TENT, 3.3.1: by NUMA node or by GPU affinity, else round robin. Its third strategy, to
// measure all pairs first, would connect each NIC with each before the first byte; here slices are
// bound late, by what the pairs that are used deliver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transfer/policy/tiers.h"

namespace braid::transfer {

/// The partner of each NIC of ours, as an index of theirs. `theirs` is not empty.
using Pairing = std::vector<size_t>;

/// The n-th NIC of a NUMA node to the n-th of the same node there.
Pairing pair_by_node(std::span<const Place> ours, std::span<const Place> theirs);
/// NICs beside the GPU of the same number. `our_gpus`: the GPU nearest to each NIC; -1: none.
Pairing pair_by_gpu(std::span<const int> our_gpus, std::span<const int> their_gpus);
/// By GPU where each NIC of both sides sits beside one, else by node.
Pairing pair_up(std::span<const Place> ours, std::span<const Place> theirs);

/// A pair of NICs that a request may use.
struct NicPair {
  size_t ours = 0;
  size_t theirs = 0;
  uint8_t tier = 0;  ///< the farther of both ends
  bool operator==(const NicPair&) const = default;
};

/// One pair for each NIC of ours: its partner, if that is as near to the far memory as any; else
/// the nearest ones there in turn.
std::vector<NicPair> pairs_between(std::span<const uint8_t> our_tiers,
                                   std::span<const uint8_t> their_tiers, const Pairing& pairing);

}  // namespace braid::transfer
