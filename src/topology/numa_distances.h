// How far NUMA nodes lie from each other, as the firmware says (ACPI's SLIT) and the kernel shows:
// 10 within a node, and for every other node its latency in tenths of that. Pure.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace braid::topology {

class JsonNode;

struct NumaDistances {
  std::vector<int> nodes;              ///< their numbers; empty: nothing is known
  std::vector<std::vector<int>> rows;  ///< from each node to each, in that order
  auto operator<=>(const NumaDistances&) const = default;

  /// None: it is unknown.
  std::optional<int> between(int from, int to) const {
    const size_t row = index_of(from), column = index_of(to);
    if (row >= rows.size() || column >= rows[row].size()) return std::nullopt;
    return rows[row][column];
  }

 private:
  size_t index_of(int node) const {
    return static_cast<size_t>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
  }
};

/// Where they cannot be distances, and why: a row or column is missing, or another node is as near
/// as the node itself. Empty: they can. The kernel rejects the same, and then knows nothing.
inline std::string flaw_of(const NumaDistances& distances) {
  const size_t count = distances.nodes.size();
  const auto index = [](size_t at) { return "[" + std::to_string(at) + "]"; };
  const auto found = [](const std::string& expected, auto what) {
    return ": expected " + expected + ", found " + std::to_string(what);
  };
  const std::string one_each = std::to_string(count) + ", one for each NUMA node";
  if (distances.rows.size() != count) return found(one_each, distances.rows.size());
  for (size_t from = 0; from < count; ++from) {
    const std::vector<int>& row = distances.rows[from];
    if (row.size() != count) return index(from) + found(one_each, row.size());
    if (row[from] <= 0) return index(from) + index(from) + found("a number above 0", row[from]);
    for (size_t to = 0; to < count; ++to)
      if (to != from && row[to] <= row[from])
        return index(from) + index(to) +
               found("more than the " + std::to_string(row[from]) + " within the node", row[to]);
  }
  return {};
}

/// Of a profile: rows of nodes that are numbered from 0.
NumaDistances read_numa_distances(const JsonNode& node, int node_count);

}  // namespace braid::topology
