#include "transfer/policy/pairing.h"

#include <algorithm>
#include <map>

namespace braid::transfer {

Pairing pair_by_node(std::span<const Place> ours, std::span<const Place> theirs) {
  std::map<int, std::vector<size_t>> there;
  for (size_t i = 0; i < theirs.size(); ++i) there[theirs[i].numa_node].push_back(i);
  std::map<int, size_t> turn;
  Pairing pairing;
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto same = there.find(ours[i].numa_node);
    const size_t nth = turn[ours[i].numa_node]++;
    pairing.push_back(same == there.end() ? i % theirs.size()
                                          : same->second[nth % same->second.size()]);
  }
  return pairing;
}

Pairing pair_by_gpu(std::span<const int> our_gpus, std::span<const int> their_gpus) {
  std::map<int, std::vector<size_t>> there;
  for (size_t i = 0; i < their_gpus.size(); ++i)
    if (their_gpus[i] >= 0) there[their_gpus[i]].push_back(i);
  std::map<int, size_t> turn;
  Pairing pairing;
  for (size_t i = 0; i < our_gpus.size(); ++i) {
    const auto same = there.find(our_gpus[i]);
    const size_t nth = turn[our_gpus[i]]++;
    pairing.push_back(same == there.end() ? i % their_gpus.size()
                                          : same->second[nth % same->second.size()]);
  }
  return pairing;
}

Pairing pair_up(std::span<const Place> ours, std::span<const Place> theirs) {
  const auto has_gpu = [](const Place& nic) { return nic.gpu >= 0; };
  if (!std::all_of(ours.begin(), ours.end(), has_gpu) ||
      !std::all_of(theirs.begin(), theirs.end(), has_gpu))
    return pair_by_node(ours, theirs);
  std::vector<int> our_gpus, their_gpus;
  for (const Place& nic : ours) our_gpus.push_back(nic.gpu);
  for (const Place& nic : theirs) their_gpus.push_back(nic.gpu);
  return pair_by_gpu(our_gpus, their_gpus);
}

std::vector<NicPair> pairs_between(std::span<const uint8_t> our_tiers,
                                   std::span<const uint8_t> their_tiers, const Pairing& pairing) {
  const uint8_t nearest = *std::min_element(their_tiers.begin(), their_tiers.end());
  std::vector<size_t> near;
  for (size_t i = 0; i < their_tiers.size(); ++i)
    if (their_tiers[i] == nearest) near.push_back(i);
  std::vector<NicPair> pairs;
  size_t turn = 0;
  for (size_t i = 0; i < our_tiers.size(); ++i) {
    // A farther NIC of ours costs its own tier anyway, so its partner may be as far.
    const size_t partner = pairing[i];
    const bool is_near = their_tiers[partner] <= std::max(nearest, our_tiers[i]);
    const size_t theirs = is_near ? partner : near[turn++ % near.size()];
    pairs.push_back({i, theirs, std::max(our_tiers[i], their_tiers[theirs])});
  }
  return pairs;
}

}  // namespace braid::transfer
