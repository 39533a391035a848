// Pure functions that choose the NIC of the peer that each of our NICs writes to. The pairing is
// one to one, so that no two of our NICs share one of theirs; the rule depends on what is known.
// Source: TENT, 3.3.1: by NUMA node or by GPU affinity, else round robin. Its third strategy
// measures all pairs first, which would connect every NIC with every other before the first byte.
// Here slices are bound late, by what the pairs in use deliver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transfer/policy/tiers.h"

namespace braid::transfer {

/// The partner of each NIC of ours, as an index of theirs. `theirs` is not empty.
using Pairing = std::vector<size_t>;

/// Pairs the n-th NIC of a NUMA node with the n-th NIC of the same node at the peer.
Pairing pair_by_node(std::span<const Place> ours, std::span<const Place> theirs);
/// Pairs NICs beside GPUs of the same number. `our_gpus`: the GPU nearest to each NIC; -1: none.
Pairing pair_by_gpu(std::span<const int> our_gpus, std::span<const int> their_gpus);
/// Pairs by GPU if each NIC of both sides sits beside one, else by node.
Pairing pair_up(std::span<const Place> ours, std::span<const Place> theirs);

/// A pair of NICs that a request may use.
struct NicPair {
  size_t ours = 0;
  size_t theirs = 0;
  uint8_t tier = 0;  ///< that of the farther end
  bool operator==(const NicPair&) const = default;
};

/// One pair for each of our NICs: with its partner if no NIC is nearer to the far memory, else with
/// the nearest NICs there in turn.
std::vector<NicPair> pairs_between(std::span<const uint8_t> our_tiers,
                                   std::span<const uint8_t> their_tiers, const Pairing& pairing);

}  // namespace braid::transfer
