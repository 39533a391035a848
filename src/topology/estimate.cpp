#include <algorithm>
#include <cstdio>
#include <map>

#include "topology/facts.h"

namespace braid::topology {
namespace {

// Of a link's raw rate, what copies reach: PCIe 55.6 of 63.0 and NVLink 396 of 450 GB/s, measured
// on 4xH200 (profiles/h200x4.json).
constexpr double kPayload = 0.88;
// Of a PCIe link's capacity, what SMs reach that read or write host memory: 51.4 of 55.6 and 52.7
// of 55.4 GB/s, measured there too.
constexpr double kKernelRead = 0.924;
constexpr double kKernelWrite = 0.951;
constexpr double kBlockGbps = 25.7;
// Of two ways' capacity, what both carry at once: 101.7 of 111.0 GB/s, measured there too.
constexpr double kBothWays = 0.916;

std::string text(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.1f", number);
  return buffer;
}

// As text() shows it, so that tables and sources agree.
double rounded(double number) {
  return static_cast<double>(static_cast<int64_t>(number * 10 + 0.5)) / 10;
}

// 10^9 bytes a second, each way, after line coding.
double raw_gbps(const PcieSpeed& link) {
  static constexpr double kLaneGbps[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
  return kLaneGbps[std::clamp(link.generation, 0, 6)] * link.lanes;
}

Figure pcie_figure(const PcieSpeed& link, const std::string& from) {
  if (!link.known()) {
    const PcieSpeed usual{4, 16};
    return {rounded(raw_gbps(usual) * kPayload),
            "assumed: PCIe 4.0 x16, for neither NVML nor sysfs says"};
  }
  const double raw = raw_gbps(link);
  return {rounded(raw * kPayload), "estimate: PCIe " + std::to_string(link.generation) + ".0 x" +
                                       std::to_string(link.lanes) + " by " + from + ": " +
                                       text(raw) + " GB/s raw, 0.88 of it payload"};
}

// One NVLink, one way: nominal 10^9 bytes a second by generation.
double nvlink_gbps(int version) { return version >= 5 ? 50 : version == 1 ? 20 : 25; }

// What GPUs of a compute capability usually have.
NvlinkFacts usual_nvlink(const GpuFacts& gpu) {
  if (gpu.compute_major >= 10) return {18, 5, true};
  if (gpu.compute_major == 9) return {18, 4, true};
  if (gpu.compute_major == 8) return {12, 3, true};
  return {6, 2, false};
}

Figure nvlink_figure(const GpuFacts& gpu, int shared_by) {
  const bool known = gpu.nvlink.links > 0;
  const NvlinkFacts nvlink = known ? gpu.nvlink : usual_nvlink(gpu);
  const double raw = nvlink.links * nvlink_gbps(nvlink.version) / shared_by;
  std::string source = known ? "estimate: " : "assumed for the compute capability: ";
  source += std::to_string(nvlink.links) + " NVLinks of version " + std::to_string(nvlink.version) +
            (known ? " by NVML" : "");
  if (shared_by > 1) source += " for " + std::to_string(shared_by) + " peers";
  return {rounded(raw * kPayload), source + ": " + text(raw) + " GB/s nominal, 0.88 of it payload"};
}

class Estimate {
 public:
  explicit Estimate(const MachineFacts& facts) : facts_(facts) {}

  Server build() {
    server_.name = "discovered";
    server_.description = facts_.description;
    if (!facts_.numa_distances.nodes.empty())
      server_.numa_distances = {facts_.numa_distances, "sysfs"};
    add_memory();
    add_gpus();
    add_nvlink();
    add_nics();
    set_memory_capacity();
    set_engines();
    return std::move(server_);
  }

 private:
  int add_vertex(VertexKind kind, const char* prefix, int index) {
    server_.vertices.push_back({kind, prefix + std::to_string(index), index});
    return static_cast<int>(server_.vertices.size()) - 1;
  }

  void add_link(LinkKind kind, int from, int to, const Figure& each_way, Figure both = {}) {
    server_.links.push_back({kind, from, to, each_way, each_way, std::move(both)});
  }

  void add_memory() {
    for (int node = 0; node < facts_.numa_nodes; ++node) {
      const int memory = add_vertex(VertexKind::kMemory, "memory", node);
      nodes_.push_back(add_vertex(VertexKind::kNumaNode, "numa", node));
      add_link(LinkKind::kMemory, memory, nodes_.back(), {});
    }
    const double link = pcie_figure(facts_.gpus.front().pcie, "").value;
    const Figure socket{rounded(1.5 * link),
                        "assumed: 1.5 PCIe links, as profile h20x8; only measuring can tell"};
    for (size_t a = 0; a < nodes_.size(); ++a)
      for (size_t b = a + 1; b < nodes_.size(); ++b)
        add_link(LinkKind::kSocket, nodes_[a], nodes_[b], socket);
  }

  // The vertex that a GPU's PCIe link starts from.
  int above(const GpuFacts& gpu) {
    const int node = nodes_[static_cast<size_t>(gpu.numa_node)];
    if (gpu.switch_id.empty()) return node;
    const auto found = switches_.find(gpu.switch_id);
    if (found != switches_.end()) return found->second;
    const int vertex =
        add_vertex(VertexKind::kPcieSwitch, "switch", static_cast<int>(switches_.size()));
    switches_[gpu.switch_id] = vertex;
    const Figure uplink = gpu.switch_pcie.known() ? pcie_figure(gpu.switch_pcie, "sysfs")
                                                  : pcie_figure(gpu.pcie, gpu.pcie_from);
    add_link(LinkKind::kPcie, node, vertex, uplink);
    return vertex;
  }

  void add_gpus() {
    for (const GpuFacts& gpu : facts_.gpus) {
      const int from = above(gpu);
      const int ordinal = static_cast<int>(server_.gpus.size());
      const int vertex = add_vertex(VertexKind::kGpu, "gpu", ordinal);
      const Figure link = pcie_figure(gpu.pcie, gpu.pcie_from);
      add_link(LinkKind::kPcie, from, vertex, link,
               {rounded(2 * link.value * kBothWays),
                "assumed: 0.916 of both ways together, as measured on 4xH200"});
      const std::string source = "CUDA driver";
      server_.gpus.push_back({gpu.name,
                              gpu.pci_bus_id,
                              vertex,
                              gpu.numa_node,
                              {gpu.memory_bytes, source},
                              {gpu.sm_count, source},
                              {{gpu.compute_major, gpu.compute_minor}, source}});
    }
  }

  void add_nics() {
    server_.nics = facts_.nics;
    for (Nic& nic : server_.nics) nic.pcie_switch = shared_switch(nic);
  }

  // Whoever has the same root port is behind the same switch, or behind switches below it: of
  // those, the GPU's with which most bridges are shared.
  int shared_switch(const Nic& nic) const {
    int vertex = -1;
    size_t most = 0;
    for (const GpuFacts& gpu : facts_.gpus) {
      const size_t count = std::min(gpu.bridges.size(), nic.bridges.size());
      size_t shared = 0;
      while (shared < count && gpu.bridges[shared] == nic.bridges[shared]) ++shared;
      if (gpu.switch_id.empty() || shared <= most) continue;
      most = shared;
      vertex = switches_.at(gpu.switch_id);
    }
    return vertex;
  }

  int peers_of(size_t gpu) const {
    const auto& row = facts_.joined[gpu];
    return static_cast<int>(std::count(row.begin(), row.end(), true));
  }

  // Through a switch, each GPU has one link to it; otherwise each pair has one.
  bool through_switch() const {
    const size_t count = facts_.gpus.size();
    const auto says_switch = [](const GpuFacts& gpu) { return gpu.nvlink.to_switch; };
    if (std::any_of(facts_.gpus.begin(), facts_.gpus.end(), says_switch)) return true;
    const auto silent = [](const GpuFacts& gpu) { return gpu.nvlink.links == 0; };
    if (!std::all_of(facts_.gpus.begin(), facts_.gpus.end(), silent)) return false;
    for (size_t gpu = 0; gpu < count; ++gpu)
      if (peers_of(gpu) != static_cast<int>(count) - 1) return false;
    return count > 2;
  }

  void add_nvlink() {
    const size_t count = facts_.gpus.size();
    if (through_switch()) {
      const int hub = add_vertex(VertexKind::kNvSwitch, "nvswitch", 0);
      for (size_t gpu = 0; gpu < count; ++gpu)
        if (peers_of(gpu) > 0)
          add_link(LinkKind::kNvLink, server_.gpus[gpu].vertex, hub, joined_figure(gpu, 1));
      return;
    }
    for (size_t a = 0; a < count; ++a)
      for (size_t b = a + 1; b < count; ++b)
        if (facts_.joined[a][b])
          add_link(LinkKind::kNvLink, server_.gpus[a].vertex, server_.gpus[b].vertex,
                   joined_figure(a, peers_of(a)));
  }

  Figure joined_figure(size_t gpu, int shared_by) const {
    Figure figure = nvlink_figure(facts_.gpus[gpu], shared_by);
    figure.source += "; peers by " + facts_.joined_from;
    return figure;
  }

  // Nobody tells how fast host memory is: as fast as its GPUs' links together, so that the figure
  // limits nothing that is not limited anyway.
  void set_memory_capacity() {
    double all = 0;
    for (const GpuFacts& gpu : facts_.gpus) all += pcie_figure(gpu.pcie, gpu.pcie_from).value;
    for (Link& link : server_.links)
      if (link.kind == LinkKind::kMemory)
        link.forward_gbps = link.backward_gbps = {
            rounded(all), "assumed: all GPUs' PCIe links together; only measuring can tell"};
  }

  void set_engines() {
    const std::string source = "assumed: as profile h200x4";
    server_.copy_engines_h2d = server_.copy_engines_d2h = {1, source};
    server_.copy_engines_peer = {2, source};
    const double link = pcie_figure(facts_.gpus.front().pcie, "").value;
    server_.kernel.host_read_gbps = {rounded(link * kKernelRead),
                                     "estimate: 0.924 of the PCIe link, as measured on 4xH200"};
    server_.kernel.host_write_gbps = {rounded(link * kKernelWrite),
                                      "estimate: 0.951 of the PCIe link, as measured on 4xH200"};
    server_.kernel.block_gbps = {kBlockGbps, "assumed: as profile h200x4"};
  }

  const MachineFacts& facts_;
  Server server_;
  std::vector<int> nodes_;
  std::map<std::string, int> switches_;
};

}  // namespace

Server estimate_server(const MachineFacts& facts) { return Estimate(facts).build(); }

}  // namespace braid::topology
