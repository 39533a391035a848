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

Json figure(double value, const std::string& source) {
  return {{"value", number(value)}, {"source", source}};
}

Json figure(const Figure& at) { return figure(at.value, at.source); }

Json memory(const Gpu& gpu) {
  return figure(std::ldexp(static_cast<double>(gpu.memory_bytes), -30), gpu.memory_source);
}

Json compute_capability(const Gpu& gpu) {
  return {{"value", std::to_string(gpu.compute_major) + "." + std::to_string(gpu.compute_minor)},
          {"source", gpu.compute_source}};
}

Json gpu_model(const Server& server) {
  const Gpu& gpu = server.gpus.front();
  Json json;
  json["name"] = gpu.name;
  json["memory_gib"] = memory(gpu);
  json["sm_count"] = figure(gpu.sm_count, gpu.sm_count_source);
  json["compute_capability"] = compute_capability(gpu);
  json["copy_engines_h2d"] = figure(server.copy_engines_h2d, server.copy_engines_h2d_source);
  json["copy_engines_d2h"] = figure(server.copy_engines_d2h, server.copy_engines_d2h_source);
  json["copy_engines_peer"] = figure(server.copy_engines_peer, server.copy_engines_peer_source);
  json["kernel_host_read_gbps"] = figure(server.kernel.host_read_gbps);
  json["kernel_host_write_gbps"] = figure(server.kernel.host_write_gbps);
  json["kernel_block_gbps"] = figure(server.kernel.block_gbps);
  return json;
}

// One GPU: what differs from the model, which is the first one's.
Json gpu_entry(const Gpu& gpu, const Gpu& model) {
  Json json{{"pci_bus_id", gpu.pci_bus_id}, {"numa_node", gpu.numa_node}};
  if (gpu.name != model.name) json["name"] = gpu.name;
  if (memory(gpu) != memory(model)) json["memory_gib"] = memory(gpu);
  if (gpu.sm_count != model.sm_count || gpu.sm_count_source != model.sm_count_source)
    json["sm_count"] = figure(gpu.sm_count, gpu.sm_count_source);
  if (compute_capability(gpu) != compute_capability(model))
    json["compute_capability"] = compute_capability(gpu);
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
