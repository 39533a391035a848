#include "transfer/policy/pairing.h"

#include <algorithm>
#include <limits>
#include <map>

namespace braid::transfer {
namespace {

// The partners of some rows, each with a column of its own: the Hungarian method with potentials
// (Kuhn 1955, Munkres 1957; in the form of shortest augmenting paths). At most as many rows as
// columns.
std::vector<size_t> match(const std::vector<std::vector<double>>& cost) {
  constexpr size_t kNone = std::numeric_limits<size_t>::max();
  const size_t rows = cost.size(), columns = cost.front().size();
  std::vector<double> row_price(rows + 1, 0), column_price(columns + 1, 0);
  std::vector<size_t> row_of(columns + 1, kNone),
      before(columns + 1, 0);  // the last column: a start
  for (size_t row = 0; row < rows; ++row) {
    std::vector<double> slack(columns + 1, std::numeric_limits<double>::infinity());
    std::vector<bool> is_used(columns + 1, false);
    size_t column = columns;
    row_of[column] = row;
    do {
      is_used[column] = true;
      const size_t at = row_of[column];
      double least = std::numeric_limits<double>::infinity();
      size_t next = columns;
      for (size_t c = 0; c < columns; ++c) {
        if (is_used[c]) continue;
        const double reduced = cost[at][c] - row_price[at] - column_price[c];
        if (reduced < slack[c]) {
          slack[c] = reduced;
          before[c] = column;
        }
        if (slack[c] < least) {
          least = slack[c];
          next = c;
        }
      }
      for (size_t c = 0; c <= columns; ++c) {
        if (is_used[c]) {
          row_price[row_of[c]] += least;
          column_price[c] -= least;
        } else {
          slack[c] -= least;
        }
      }
      column = next;
    } while (row_of[column] != kNone);
    while (column != columns) {
      row_of[column] = row_of[before[column]];
      column = before[column];
    }
    row_of[columns] = kNone;
  }
  std::vector<size_t> found(rows);
  for (size_t c = 0; c < columns; ++c)
    if (row_of[c] != kNone) found[row_of[c]] = c;
  return found;
}

}  // namespace

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

Pairing pair_by_latency(const std::vector<std::vector<double>>& latency_us) {
  Pairing pairing;
  if (latency_us.empty()) return pairing;
  const size_t columns = latency_us.front().size();
  for (size_t first = 0; first < latency_us.size(); first += columns) {
    const size_t last = std::min(latency_us.size(), first + columns);
    const auto matched = match({latency_us.begin() + static_cast<std::ptrdiff_t>(first),
                                latency_us.begin() + static_cast<std::ptrdiff_t>(last)});
    pairing.insert(pairing.end(), matched.begin(), matched.end());
  }
  return pairing;
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
    // A farther NIC of ours costs its own tier anyway: its partner may be as far.
    const size_t partner = pairing[i];
    const bool is_near = their_tiers[partner] <= std::max(nearest, our_tiers[i]);
    const size_t theirs = is_near ? partner : near[turn++ % near.size()];
    pairs.push_back({i, theirs, std::max(our_tiers[i], their_tiers[theirs])});
  }
  return pairs;
}

}  // namespace braid::transfer
