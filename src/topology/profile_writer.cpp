#include <algorithm>
#include <cmath>

#include "topology/json_reader.h"
#include "topology/profile.h"

namespace braid::topology {
namespace {

// A whole number without a fraction: 96, not 96.0.
Json number(double value) {
  if (std::floor(value) == value && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return value;
}

template <typename Value>
Json figure(const Sourced<Value>& at) {
  return {{"value", number(at.value)}, {"source", at.source}};
}

Json memory(const Gpu& gpu) {
  const auto& [bytes, source] = gpu.memory_bytes;
  return figure(Figure{std::ldexp(static_cast<double>(bytes), -30), source});
}

Json compute_capability(const Gpu& gpu) {
  const auto& [capability, source] = gpu.compute;
  return {{"value", std::to_string(capability.major) + "." + std::to_string(capability.minor)},
          {"source", source}};
}

Json gpu_model(const Server& server) {
  const Gpu& gpu = server.gpus.front();
  Json json;
  json["name"] = gpu.name;
  json["memory_gib"] = memory(gpu);
  json["sm_count"] = figure(gpu.sm_count);
  json["compute_capability"] = compute_capability(gpu);
  json["copy_engines_h2d"] = figure(server.copy_engines_h2d);
  json["copy_engines_d2h"] = figure(server.copy_engines_d2h);
  json["copy_engines_peer"] = figure(server.copy_engines_peer);
  json["kernel_host_read_gbps"] = figure(server.kernel.host_read_gbps);
  json["kernel_host_write_gbps"] = figure(server.kernel.host_write_gbps);
  json["kernel_block_gbps"] = figure(server.kernel.block_gbps);
  return json;
}

// One GPU: what differs from the model, which is the first one's.
Json gpu_entry(const Gpu& gpu, const Gpu& model) {
  Json json{{"pci_bus_id", gpu.pci_bus_id}, {"numa_node", gpu.numa_node}};
  if (gpu.name != model.name) json["name"] = gpu.name;
  if (gpu.memory_bytes != model.memory_bytes) json["memory_gib"] = memory(gpu);
  if (gpu.sm_count != model.sm_count) json["sm_count"] = figure(gpu.sm_count);
  if (gpu.compute != model.compute) json["compute_capability"] = compute_capability(gpu);
  return json;
}

Json link_entry(const Link& link) {
  Json json{{"kind", link_kind_name(link.kind)}, {"ends", Json::array()}};
  json["forward_gbps"] = figure(link.forward_gbps);
  json["backward_gbps"] = figure(link.backward_gbps);
  if (link.both_gbps.value > 0) json["both_gbps"] = figure(link.both_gbps);
  return json;
}

// Neighbours that differ only in their ends become one entry.
Json link_entries(const Server& server) {
  Json entries = Json::array();
  Json last;
  for (const Link& link : server.links) {
    Json entry = link_entry(link);
    if (entry != last) entries.push_back(entry);
    last = std::move(entry);
    entries.back()["ends"].push_back({server.vertices[static_cast<size_t>(link.from)].id,
                                      server.vertices[static_cast<size_t>(link.to)].id});
  }
  return entries;
}

Json nic_entry(const Server& server, const Nic& nic) {
  Json json{{"name", nic.name}};
  if (!nic.rdma_device.empty()) json["rdma_device"] = nic.rdma_device;
  if (!nic.pci_bus_id.empty()) json["pci_bus_id"] = nic.pci_bus_id;
  if (nic.numa_node >= 0) json["numa_node"] = nic.numa_node;
  if (nic.pcie_switch >= 0)
    json["pcie_switch"] = server.vertices[static_cast<size_t>(nic.pcie_switch)].id;
  if (!nic.link_gbps.source.empty()) json["link_gbps"] = figure(nic.link_gbps);
  return json;
}

int count(const Server& server, VertexKind kind) {
  return static_cast<int>(std::count_if(server.vertices.begin(), server.vertices.end(),
                                        [kind](const Vertex& at) { return at.kind == kind; }));
}

Json profile(const Server& server) {
  Json json;
  json["name"] = server.name;
  json["description"] = server.description;
  json["gpu_model"] = gpu_model(server);
  json["numa_nodes"] = server.numa_node_count();
  if (const auto& [distances, source] = server.numa_distances; !distances.nodes.empty())
    json["numa_distances"] = {{"value", distances.rows}, {"source", source}};
  if (const int switches = count(server, VertexKind::kPcieSwitch)) json["pcie_switches"] = switches;
  if (const int switches = count(server, VertexKind::kNvSwitch)) json["nvswitches"] = switches;
  json["gpus"] = Json::array();
  for (const Gpu& gpu : server.gpus) json["gpus"].push_back(gpu_entry(gpu, server.gpus.front()));
  for (const Nic& nic : server.nics) json["nics"].push_back(nic_entry(server, nic));
  json["links"] = link_entries(server);
  if (!server.costs.api_call_us.source.empty())
    for (const CostRow& row : cost_rows())
      json["costs"][row.name] = figure(server.costs.*row.figure);
  if (!server.faults_json.empty()) json["faults"] = Json::parse(server.faults_json);
  return json;
}

}  // namespace

std::string write_profile(const Server& server) {
  return profile(server).dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace braid::topology
