#include "topology/numa_distances.h"

#include "topology/json_reader.h"

namespace braid::topology {

NumaDistances read_numa_distances(const JsonNode& node, int node_count) {
  constexpr int kMost = 255;  // a byte in ACPI
  NumaDistances distances;
  for (int i = 0; i < node_count; ++i) distances.nodes.push_back(i);
  for (const JsonNode& row : node.items(1, "a row of distances for each NUMA node")) {
    distances.rows.emplace_back();
    for (const JsonNode& each : row.items(1, "a distance to each NUMA node"))
      distances.rows.back().push_back(each.whole_number(1, kMost));
  }
  return distances;
}

}  // namespace braid::topology
