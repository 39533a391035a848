// A profile of a server with four NUMA nodes, two in each socket, as an EPYC has with NPS2: the
// GPUs are near node 0, which has no NIC; each other node has one.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/topology/shipped.h"

namespace braid::topology {

inline nlohmann::ordered_json four_nodes() {
  using Json = nlohmann::ordered_json;
  Json json = Json::parse(shipped_text("h200x4"));
  json["name"] = "four-nodes";
  json["numa_nodes"] = 4;
  json["numa_distances"] = {
      {"value", {{10, 12, 32, 32}, {12, 10, 32, 32}, {32, 32, 10, 12}, {32, 32, 12, 10}}},
      {"source", "assumed: as an EPYC with NPS2 says"}};
  Json memories, sockets;
  for (Json& link : json["links"])
    if (link["kind"] == "memory") memories = sockets = link;
  sockets["kind"] = "socket";
  memories["ends"] = sockets["ends"] = Json::array();
  for (int node = 0; node < 4; ++node) {
    const std::string name = "numa" + std::to_string(node);
    memories["ends"].push_back({"memory" + std::to_string(node), name});
    for (int other = 0; other < node; ++other)
      sockets["ends"].push_back({"numa" + std::to_string(other), name});
    if (node > 0)
      json["nics"].push_back({{"name", "mlx5_" + std::to_string(node)},
                              {"pci_bus_id", "0000:a" + std::to_string(node) + ":00.0"},
                              {"numa_node", node}});
  }
  for (Json& link : json["links"])
    if (link["kind"] == "memory") link = memories;
  json["links"].push_back(sockets);
  return json;
}

}  // namespace braid::topology
