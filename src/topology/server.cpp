#include "topology/server.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "base/try.h"

namespace braid::topology {
namespace {

int find_vertex(const Server& server, VertexKind kind, int index) {
  for (size_t i = 0; i < server.vertices.size(); ++i)
    if (server.vertices[i].kind == kind && server.vertices[i].index == index)
      return static_cast<int>(i);
  return -1;
}

bool is_gpu(const Server& server, int gpu) {
  return gpu >= 0 && gpu < static_cast<int>(server.gpus.size());
}

// NVLink carries bytes between GPUs only; everything else reaches host memory.
enum class Fabric { kHost, kNvLink };

bool carries(Fabric fabric, const Link& link) {
  return (link.kind == LinkKind::kNvLink) == (fabric == Fabric::kNvLink);
}

// A memory or a GPU is an end, never a way through.
bool forwards(const Vertex& vertex) {
  return vertex.kind != VertexKind::kGpu && vertex.kind != VertexKind::kMemory;
}

// The hop over `link` that leaves `vertex`, and the vertex it arrives at; -1 when there is none.
std::pair<Hop, int> leave(const Server& server, int link, int vertex) {
  const Link& at = server.links[static_cast<size_t>(link)];
  if (at.from == vertex) return {{link, true}, at.to};
  if (at.to == vertex) return {{link, false}, at.from};
  return {{}, -1};
}

// Breadth first, links in their order, so the result is the fewest hops and always the same one.
std::vector<Hop> shortest(const Server& server, int start, int goal, Fabric fabric) {
  if (start < 0 || goal < 0 || start == goal) return {};
  const size_t count = server.vertices.size();
  std::vector<int> previous(count, -1);
  std::vector<Hop> arrived_by(count);
  std::vector<bool> seen(count, false);
  std::deque<int> queue{start};
  seen[static_cast<size_t>(start)] = true;
  while (!queue.empty() && !seen[static_cast<size_t>(goal)]) {
    const int here = queue.front();
    queue.pop_front();
    if (here != start && !forwards(server.vertices[static_cast<size_t>(here)])) continue;
    for (size_t link = 0; link < server.links.size(); ++link) {
      if (!carries(fabric, server.links[link])) continue;
      const auto [hop, next] = leave(server, static_cast<int>(link), here);
      if (next < 0 || seen[static_cast<size_t>(next)]) continue;
      seen[static_cast<size_t>(next)] = true;
      previous[static_cast<size_t>(next)] = here;
      arrived_by[static_cast<size_t>(next)] = hop;
      queue.push_back(next);
    }
  }
  std::vector<Hop> hops;
  if (!seen[static_cast<size_t>(goal)]) return hops;
  for (int at = goal; at != start; at = previous[static_cast<size_t>(at)])
    hops.push_back(arrived_by[static_cast<size_t>(at)]);
  std::reverse(hops.begin(), hops.end());
  return hops;
}

double narrowest(const Server& server, const std::vector<Hop>& hops) {
  double gbps = 0;
  for (const Hop& hop : hops) {
    const Link& link = server.links[static_cast<size_t>(hop.link)];
    const double capacity = hop.forward ? link.forward_gbps.value : link.backward_gbps.value;
    gbps = gbps == 0 ? capacity : std::min(gbps, capacity);
  }
  return gbps;
}

bool crosses_socket(const Server& server, const std::vector<Hop>& hops) {
  return std::any_of(hops.begin(), hops.end(), [&](const Hop& hop) {
    return server.links[static_cast<size_t>(hop.link)].kind == LinkKind::kSocket;
  });
}

Path make_path(const Server& server, int target, int relay, std::vector<Hop> hops) {
  Path path{target, relay, std::move(hops), 0, false};
  path.gbps = narrowest(server, path.hops);
  path.crosses_socket = crosses_socket(server, path.hops);
  return path;
}

Status check_vertices(const Server& server) {
  std::set<std::string> ids;
  std::set<std::pair<VertexKind, int>> indices;
  for (const Vertex& vertex : server.vertices) {
    if (vertex.id.empty()) return Status::error("a vertex has no id");
    if (!ids.insert(vertex.id).second)
      return Status::error("two vertices have the id '" + vertex.id + "'");
    if (!indices.insert({vertex.kind, vertex.index}).second)
      return Status::error("vertex '" + vertex.id + "' repeats the index " +
                           std::to_string(vertex.index) + " among vertices of its kind");
  }
  return {};
}

bool joins(LinkKind kind, VertexKind from, VertexKind to) {
  using enum VertexKind;
  switch (kind) {
    case LinkKind::kMemory: return from == kMemory && to == kNumaNode;
    case LinkKind::kSocket: return from == kNumaNode && to == kNumaNode;
    case LinkKind::kPcie:
      return (from == kNumaNode || from == kPcieSwitch) && (to == kPcieSwitch || to == kGpu);
    case LinkKind::kNvLink: return from == kGpu && (to == kGpu || to == kNvSwitch);
  }
  return false;
}

Status check_capacities(const std::string& who, const Link& link) {
  if (!(link.forward_gbps.value > 0) || !(link.backward_gbps.value > 0))
    return Status::error(who + " needs a capacity above 0 each way");
  if (link.both_gbps.value < 0) return Status::error(who + " has a negative limit on both ways");
  return {};
}

Status check_links(const Server& server) {
  const int count = static_cast<int>(server.vertices.size());
  std::set<std::pair<int, int>> joined;
  for (size_t i = 0; i < server.links.size(); ++i) {
    const Link& link = server.links[i];
    std::string who = "link " + std::to_string(i);
    if (link.from < 0 || link.from >= count || link.to < 0 || link.to >= count)
      return Status::error(who + " ends at a vertex that does not exist");
    const Vertex& from = server.vertices[static_cast<size_t>(link.from)];
    const Vertex& to = server.vertices[static_cast<size_t>(link.to)];
    who = "the link " + from.id + " - " + to.id;
    if (link.from == link.to || !joins(link.kind, from.kind, to.kind))
      return Status::error(who + " joins vertices that a link of its kind cannot join");
    if (!joined.insert(std::minmax(link.from, link.to)).second)
      return Status::error(who + " is there twice");
    BRAID_TRY(check_capacities(who, link));
  }
  return {};
}

Status check_gpu(const Server& server, int gpu, int nodes) {
  const std::string who = "gpu" + std::to_string(gpu);
  const Gpu& at = server.gpus[static_cast<size_t>(gpu)];
  for (int other = 0; other < gpu; ++other)
    if (server.gpus[static_cast<size_t>(other)].pci_bus_id == at.pci_bus_id)
      return Status::error(who + " has the pci_bus_id of gpu" + std::to_string(other) + ", " +
                           at.pci_bus_id);
  if (find_vertex(server, VertexKind::kGpu, gpu) != at.vertex)
    return Status::error(who + " does not stand at its own vertex");
  if (at.numa_node < 0 || at.numa_node >= nodes)
    return Status::error(who + " is near NUMA node " + std::to_string(at.numa_node) +
                         ", which does not exist");
  for (int node = 0; node < nodes; ++node)
    if (host_route(server, node, gpu, true).empty())
      return Status::error("no links lead from memory" + std::to_string(node) + " to " + who);
  return {};
}

Status check_distances(const NumaDistances& distances, int nodes) {
  if (distances.nodes.empty()) return {};
  if (static_cast<int>(distances.nodes.size()) != nodes)
    return Status::error("numa_distances: of " + std::to_string(distances.nodes.size()) +
                         " NUMA nodes, and the server has " + std::to_string(nodes));
  const std::string flaw = flaw_of(distances);
  return flaw.empty() ? Status() : Status::error("numa_distances.value" + flaw);
}

Status check_nics(const Server& server, int nodes) {
  std::set<std::string> names;
  for (const Nic& nic : server.nics) {
    const std::string who = "NIC '" + nic.name + "'";
    if (!names.insert(nic.name).second) return Status::error("two NICs are called " + nic.name);
    if (nic.numa_node < -1 || nic.numa_node >= nodes)
      return Status::error(who + " is near NUMA node " + std::to_string(nic.numa_node) +
                           ", and the server has " + std::to_string(nodes));
    if (nic.pcie_switch >= 0 &&
        server.vertices[static_cast<size_t>(nic.pcie_switch)].kind != VertexKind::kPcieSwitch)
      return Status::error(who + " is behind " +
                           server.vertices[static_cast<size_t>(nic.pcie_switch)].id +
                           ", which is no PCIe switch");
  }
  return {};
}

}  // namespace

std::span<const CostRow> cost_rows() {
  static constexpr CostRow kRows[] = {{"api_call_us", &Costs::api_call_us},
                                      {"event_call_us", &Costs::event_call_us},
                                      {"copy_start_us", &Costs::copy_start_us},
                                      {"kernel_start_us", &Costs::kernel_start_us},
                                      {"event_wait_us", &Costs::event_wait_us},
                                      {"peer_event_wait_us", &Costs::peer_event_wait_us},
                                      {"wait_value_us", &Costs::wait_value_us},
                                      {"write_value_us", &Costs::write_value_us},
                                      {"host_function_us", &Costs::host_function_us},
                                      {"synchronize_us", &Costs::synchronize_us},
                                      {"local_atomic_us", &Costs::local_atomic_us},
                                      {"peer_atomic_us", &Costs::peer_atomic_us},
                                      {"host_store_us", &Costs::host_store_us},
                                      {"poll_us", &Costs::poll_us}};
  return kRows;
}

const char* link_kind_name(LinkKind kind) {
  switch (kind) {
    case LinkKind::kMemory: return "memory";
    case LinkKind::kSocket: return "socket";
    case LinkKind::kPcie: return "pcie";
    case LinkKind::kNvLink: return "nvlink";
  }
  return "unknown";
}

int Server::numa_node_count() const {
  return static_cast<int>(std::count_if(vertices.begin(), vertices.end(), [](const Vertex& vertex) {
    return vertex.kind == VertexKind::kNumaNode;
  }));
}

bool Server::has_nvlink(int gpu_a, int gpu_b) const {
  if (!is_gpu(*this, gpu_a) || !is_gpu(*this, gpu_b)) return false;
  return !shortest(*this, gpus[static_cast<size_t>(gpu_a)].vertex,
                   gpus[static_cast<size_t>(gpu_b)].vertex, Fabric::kNvLink)
              .empty();
}

std::vector<Hop> host_route(const Server& server, int numa_node, int gpu, bool to_gpu) {
  if (!is_gpu(server, gpu)) return {};
  const int memory = find_vertex(server, VertexKind::kMemory, numa_node);
  const int vertex = server.gpus[static_cast<size_t>(gpu)].vertex;
  std::vector<Hop> hops = shortest(server, memory, vertex, Fabric::kHost);
  if (to_gpu) return hops;
  std::reverse(hops.begin(), hops.end());
  for (Hop& hop : hops) hop.forward = !hop.forward;
  return hops;
}

std::vector<Hop> peer_route(const Server& server, int from_gpu, int to_gpu) {
  if (!is_gpu(server, from_gpu) || !is_gpu(server, to_gpu)) return {};
  const int from = server.gpus[static_cast<size_t>(from_gpu)].vertex;
  const int to = server.gpus[static_cast<size_t>(to_gpu)].vertex;
  std::vector<Hop> hops = shortest(server, from, to, Fabric::kNvLink);
  return hops.empty() ? shortest(server, from, to, Fabric::kHost) : hops;
}

std::vector<Path> paths_to(const Server& server, int target, int numa_node) {
  std::vector<Path> paths;
  std::vector<Hop> direct = host_route(server, numa_node, target, true);
  if (direct.empty()) return paths;
  paths.push_back(make_path(server, target, -1, std::move(direct)));
  for (int relay = 0; relay < static_cast<int>(server.gpus.size()); ++relay) {
    if (relay == target || !server.has_nvlink(relay, target)) continue;
    std::vector<Hop> hops = host_route(server, numa_node, relay, true);
    if (hops.empty()) continue;
    const std::vector<Hop> over = peer_route(server, relay, target);
    hops.insert(hops.end(), over.begin(), over.end());
    paths.push_back(make_path(server, target, relay, std::move(hops)));
  }
  std::stable_partition(paths.begin() + 1, paths.end(),
                        [](const Path& path) { return !path.crosses_socket; });
  return paths;
}

Nearness nearness(const Server& server, int gpu, int nic) {
  const Gpu& to = server.gpus[static_cast<size_t>(gpu)];
  const Nic& from = server.nics[static_cast<size_t>(nic)];
  if (from.is_virtual()) return Nearness::kFar;
  for (const Link& link : server.links)
    if (link.kind == LinkKind::kPcie && link.to == to.vertex && link.from == from.pcie_switch)
      return Nearness::kSameSwitch;
  return from.numa_node == to.numa_node ? Nearness::kSameNode : Nearness::kFar;
}

std::vector<int> nics_near(const Server& server, int gpu, Nearness wanted) {
  std::vector<int> near;
  for (int nic = 0; nic < static_cast<int>(server.nics.size()); ++nic)
    if (!server.nics[static_cast<size_t>(nic)].is_virtual() && nearness(server, gpu, nic) == wanted)
      near.push_back(nic);
  return near;
}

Status validate(const Server& server) {
  if (server.gpus.empty()) return Status::error("the server has no GPU");
  const int nodes = server.numa_node_count();
  if (nodes == 0) return Status::error("the server has no NUMA node");
  BRAID_TRY(check_vertices(server));
  BRAID_TRY(check_links(server));
  if (find_vertex(server, VertexKind::kGpu, static_cast<int>(server.gpus.size())) >= 0)
    return Status::error("there are more GPU vertices than GPUs");
  for (int node = 0; node < nodes; ++node)
    if (find_vertex(server, VertexKind::kMemory, node) < 0 ||
        find_vertex(server, VertexKind::kNumaNode, node) < 0)
      return Status::error("NUMA nodes and memories are not numbered alike from 0");
  for (int gpu = 0; gpu < static_cast<int>(server.gpus.size()); ++gpu)
    BRAID_TRY(check_gpu(server, gpu, nodes));
  BRAID_TRY(check_distances(server.numa_distances.value, nodes));
  return check_nics(server, nodes);
}

}  // namespace braid::topology
