#include "transfer/sim/cluster.h"

#include "topology/json_reader.h"

namespace braid::transfer::sim {
namespace {

using topology::JsonNode;

topology::Figure read_figure(const JsonNode& node) {
  node.expect_keys({"value", "source"});
  return {node["value"].number_from_zero(), node["source"].text()};
}

}  // namespace

const std::vector<ClusterRow>& cluster_rows() {
  static const std::vector<ClusterRow> rows = {
      {"gpus", &Cluster::gpus},
      {"nics", &Cluster::nics},
      {"nic_gbps", &Cluster::nic_gbps},
      {"gpu_pcie_gbps", &Cluster::gpu_pcie_gbps},
      {"nic_pcie_gbps", &Cluster::nic_pcie_gbps},
      {"memory_gbps", &Cluster::memory_gbps},
      {"socket_gbps", &Cluster::socket_gbps},
      {"latency_us", &Cluster::latency_us},
      {"socket_latency_us", &Cluster::socket_latency_us},
      {"latency_jitter", &Cluster::latency_jitter},
      {"post_us", &Cluster::post_us},
      {"submit_us", &Cluster::submit_us},
      {"workers", &Cluster::workers},
      {"fence_us", &Cluster::fence_us},
  };
  return rows;
}

Place Cluster::nic_place(int nic) const {
  return {false, nic * numa_nodes / nic_count(), gpu_count() > 0 ? nic : -1};
}

Place Cluster::gpu_place(int gpu) const { return {true, gpu * numa_nodes / gpu_count(), gpu}; }

Result<Cluster> load_cluster(const std::string& path) {
  const Result<std::string> text = topology::read_text(path);
  if (!text.ok()) return text.status();
  const Result<topology::Json> json = topology::parse_json(text.value(), path);
  if (!json.ok()) return json.status();
  topology::JsonErrors errors(path);
  const JsonNode root(&json.value(), "", &errors);
  std::vector<const char*> keys = {"name", "description", "hosts", "numa_nodes"};
  for (const ClusterRow& row : cluster_rows()) keys.push_back(row.name);
  root.expect_keys(keys);
  Cluster cluster;
  cluster.name = root["name"].text();
  cluster.description = root["description"].text();
  cluster.hosts = root["hosts"].whole_number(2, 1000);
  cluster.numa_nodes = root["numa_nodes"].whole_number(1, 16);
  for (const ClusterRow& row : cluster_rows()) cluster.*row.figure = read_figure(root[row.name]);
  if (errors.ok() && cluster.nic_count() < cluster.numa_nodes)
    errors.add("nics", "fewer than NUMA nodes", "Give each node at least one");
  if (!errors.ok()) return errors.first();
  return cluster;
}

}  // namespace braid::transfer::sim
