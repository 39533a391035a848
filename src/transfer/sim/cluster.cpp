#include "transfer/sim/cluster.h"

#include <fmt/format.h>

#include <cmath>

#include "topology/json_reader.h"

namespace braid::transfer::sim {
namespace {

using topology::JsonNode;

// Beyond these, runs would take for ever, or no memory would hold them.
using Range = ClusterRow::Range;
constexpr Range kGpus{0, 1024, true}, kCount{1, 1024, true};
constexpr Range kGbps{0.001, 1e6, false}, kUs{0, 1e6, false}, kJitter{0, 100, false};

topology::Figure read_figure(const JsonNode& node, const Range& range) {
  node.expect_keys({"value", "source"});
  const double value = node["value"].number_from_zero();
  const bool is_right = value >= range.least && value <= range.most &&
                        (!range.is_whole || value == std::floor(value));
  if (!is_right)
    node["value"].refuse(fmt::format("expected a {}number from {:g} to {:g}, found {:g}",
                                     range.is_whole ? "whole " : "", range.least, range.most,
                                     value));
  return {value, node["source"].text()};
}

}  // namespace

const std::vector<ClusterRow>& cluster_rows() {
  static const std::vector<ClusterRow> rows = {
      {"gpus", &Cluster::gpus, kGpus},
      {"nics", &Cluster::nics, kCount},
      {"nic_gbps", &Cluster::nic_gbps, kGbps},
      {"gpu_pcie_gbps", &Cluster::gpu_pcie_gbps, kGbps},
      {"nic_pcie_gbps", &Cluster::nic_pcie_gbps, kGbps},
      {"memory_gbps", &Cluster::memory_gbps, kGbps},
      {"socket_gbps", &Cluster::socket_gbps, kGbps},
      {"latency_us", &Cluster::latency_us, kUs},
      {"socket_latency_us", &Cluster::socket_latency_us, kUs},
      {"latency_jitter", &Cluster::latency_jitter, kJitter},
      {"post_us", &Cluster::post_us, kUs},
      {"submit_us", &Cluster::submit_us, kUs},
      {"workers", &Cluster::workers, kCount},
      {"fence_us", &Cluster::fence_us, kUs},
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
  for (const ClusterRow& row : cluster_rows())
    cluster.*row.figure = read_figure(root[row.name], row.range);
  if (errors.ok() && cluster.nic_count() < cluster.numa_nodes)
    errors.add("nics", "fewer than NUMA nodes", "Give each node at least one");
  if (!errors.ok()) return errors.first();
  return cluster;
}

}  // namespace braid::transfer::sim
