#include "topology/profile.h"

#include <cmath>
#include <utility>

#include "base/try.h"
#include "topology/faults.h"
#include "topology/json_reader.h"

namespace braid::topology {
namespace {

// Sanity bounds, so that a slip of the pen does not build a server of a million GPUs.
constexpr int kMostVertices = 64;

constexpr double kLargestFigure = 65536;  // GB/s, GiB, us

// {"value": ..., "source": ...}, of which `read` takes the value.
template <typename Read>
auto read_sourced(const JsonNode& node, Read read) -> Sourced<decltype(read(node))> {
  node.expect_keys({"value", "source"});
  return {read(node["value"]), node["source"].text()};
}

Figure read_figure(const JsonNode& node, bool zero_allowed = false) {
  return read_sourced(node, [zero_allowed](const JsonNode& value) {
    const double figure = zero_allowed ? value.number_from_zero() : value.number_above_zero();
    if (figure > kLargestFigure) value.fail("at most 65536");
    return figure;
  });
}

Sourced<int> read_count(const JsonNode& node, int least, int most) {
  return read_sourced(node, [=](const JsonNode& at) { return at.whole_number(least, most); });
}

// "9.0" to 9 and 0.
ComputeCapability parse_compute_capability(const JsonNode& node) {
  const std::string text = node.text();
  const bool well_formed = text.size() >= 3 && text.size() <= 4 && text[text.size() - 2] == '.' &&
                           text.find_first_not_of("0123456789.") == std::string::npos &&
                           text.find('.') == text.size() - 2;
  if (well_formed) return {std::stoi(text.substr(0, text.size() - 2)), text.back() - '0'};
  node.fail("a compute capability such as \"9.0\"");
  return {};
}

Sourced<uint64_t> read_memory(const JsonNode& node) {
  const Figure gib = read_figure(node);
  return {static_cast<uint64_t>(std::llround(std::ldexp(gib.value, 30))), gib.source};
}

// What the model's GPUs are; the keys that a single GPU may override.
void read_identity(const JsonNode& node, Gpu& gpu) {
  if (const auto name = node.find("name")) gpu.name = name->text();
  if (const auto memory = node.find("memory_gib")) gpu.memory_bytes = read_memory(*memory);
  if (const auto count = node.find("sm_count")) gpu.sm_count = read_count(*count, 1, 4096);
  if (const auto compute = node.find("compute_capability"))
    gpu.compute = read_sourced(*compute, parse_compute_capability);
}

Gpu read_gpu_model(const JsonNode& node, Server& server) {
  node.expect_keys({"name", "memory_gib", "sm_count", "compute_capability", "copy_engines_h2d",
                    "copy_engines_d2h", "copy_engines_peer", "kernel_host_read_gbps",
                    "kernel_host_write_gbps", "kernel_block_gbps"});
  Gpu gpu;
  read_identity(node, gpu);
  server.copy_engines_h2d = read_count(node["copy_engines_h2d"], 1, 16);
  server.copy_engines_d2h = read_count(node["copy_engines_d2h"], 1, 16);
  server.copy_engines_peer = read_count(node["copy_engines_peer"], 1, 16);
  server.kernel.host_read_gbps = read_figure(node["kernel_host_read_gbps"]);
  server.kernel.host_write_gbps = read_figure(node["kernel_host_write_gbps"]);
  server.kernel.block_gbps = read_figure(node["kernel_block_gbps"]);
  return gpu;
}

void add_vertices(Server& server, VertexKind kind, const char* prefix, int count) {
  for (int i = 0; i < count; ++i) server.vertices.push_back({kind, prefix + std::to_string(i), i});
}

int vertex_number(const Server& server, const std::string& id) {
  for (size_t i = 0; i < server.vertices.size(); ++i)
    if (server.vertices[i].id == id) return static_cast<int>(i);
  return -1;
}

void read_gpus(const JsonNode& root, const Gpu& model, int numa_nodes, Server& server) {
  const std::vector<JsonNode> nodes = root["gpus"].items(1, "a list of at least one GPU");
  add_vertices(server, VertexKind::kGpu, "gpu", static_cast<int>(nodes.size()));
  if (nodes.size() > kMostVertices) root["gpus"].fail("at most 64 GPUs");
  for (const JsonNode& node : nodes) {
    node.expect_keys({"pci_bus_id", "numa_node"},
                     {"name", "memory_gib", "sm_count", "compute_capability"});
    Gpu gpu = model;
    read_identity(node, gpu);
    gpu.pci_bus_id = node["pci_bus_id"].text();
    gpu.numa_node = node["numa_node"].whole_number(0, numa_nodes - 1);
    gpu.vertex = vertex_number(server, "gpu" + std::to_string(server.gpus.size()));
    server.gpus.push_back(std::move(gpu));
  }
}

void read_vertices(const JsonNode& root, const Gpu& model, Server& server) {
  const int numa_nodes = root["numa_nodes"].whole_number(1, kMostVertices);
  const auto optional_count = [&](const char* key) {
    const auto node = root.find(key);
    return node ? node->whole_number(0, kMostVertices) : 0;
  };
  add_vertices(server, VertexKind::kMemory, "memory", numa_nodes);
  add_vertices(server, VertexKind::kNumaNode, "numa", numa_nodes);
  add_vertices(server, VertexKind::kPcieSwitch, "switch", optional_count("pcie_switches"));
  add_vertices(server, VertexKind::kNvSwitch, "nvswitch", optional_count("nvswitches"));
  read_gpus(root, model, numa_nodes, server);
}

LinkKind read_link_kind(const JsonNode& node) {
  const std::string text = node.text();
  for (const LinkKind kind :
       {LinkKind::kMemory, LinkKind::kSocket, LinkKind::kPcie, LinkKind::kNvLink})
    if (text == link_kind_name(kind)) return kind;
  node.fail("memory, socket, pcie or nvlink");
  return LinkKind::kPcie;
}

int read_end(const JsonNode& node, const Server& server) {
  const std::string id = node.text();
  const int vertex = vertex_number(server, id);
  if (vertex < 0) node.fail("the name of a vertex, such as \"numa0\" or \"gpu0\"");
  return vertex;
}

// After the vertices, of which a switch may be named.
void read_nics(const JsonNode& root, Server& server) {
  const auto list = root.find("nics");
  if (!list) return;
  for (const JsonNode& node : list->items(0, "a list of NICs")) {
    node.expect_keys({"name"},
                     {"rdma_device", "pci_bus_id", "numa_node", "pcie_switch", "link_gbps"});
    Nic nic;
    nic.name = node["name"].text();
    if (const auto device = node.find("rdma_device")) nic.rdma_device = device->text();
    if (const auto bus_id = node.find("pci_bus_id")) nic.pci_bus_id = bus_id->text();
    if (const auto near = node.find("numa_node"))
      nic.numa_node = near->whole_number(0, server.numa_node_count() - 1);
    if (const auto above = node.find("pcie_switch")) nic.pcie_switch = read_end(*above, server);
    if (const auto speed = node.find("link_gbps")) nic.link_gbps = read_figure(*speed);
    server.nics.push_back(std::move(nic));
  }
}

// One entry describes links that are alike: the capacities once, the two ends of each.
void read_links(const JsonNode& node, Server& server) {
  node.expect_keys({"kind", "ends", "forward_gbps", "backward_gbps"}, {"both_gbps"});
  Link link;
  link.kind = read_link_kind(node["kind"]);
  link.forward_gbps = read_figure(node["forward_gbps"]);
  link.backward_gbps = read_figure(node["backward_gbps"]);
  if (const auto both = node.find("both_gbps")) link.both_gbps = read_figure(*both);
  for (const JsonNode& pair : node["ends"].items(1, "a list of pairs of vertices")) {
    const std::vector<JsonNode> ends = pair.items(2, "two vertices: [\"numa0\", \"gpu0\"]");
    if (ends.size() > 2) pair.fail("two vertices: [\"numa0\", \"gpu0\"]");
    if (ends.size() != 2) return;
    link.from = read_end(ends[0], server);
    link.to = read_end(ends[1], server);
    server.links.push_back(link);
  }
}

void read_costs(const JsonNode& node, Costs& costs) {
  std::vector<const char*> keys;
  for (const CostRow& row : cost_rows()) keys.push_back(row.name);
  node.expect_keys(keys);
  // Polling in no time at all would stop virtual time.
  for (const CostRow& row : cost_rows())
    costs.*row.figure = read_figure(node[row.name], row.figure != &Costs::poll_us);
}

void check_faults(const JsonNode& root, Server& server) {
  const auto node = root.find("faults");
  if (!node) return;
  Faults faults;
  read_faults(*node, server, faults);
  server.faults_json = node->json()->dump();
}

Server read_server(const JsonNode& root) {
  Server server;
  root.expect_keys({"name", "description", "gpu_model", "numa_nodes", "gpus", "links", "costs"},
                   {"numa_distances", "pcie_switches", "nvswitches", "nics", "faults"});
  server.name = root["name"].text();
  server.description = root["description"].text();
  const Gpu model = read_gpu_model(root["gpu_model"], server);
  read_vertices(root, model, server);
  if (const auto distances = root.find("numa_distances"))
    server.numa_distances = read_sourced(*distances, [&](const JsonNode& value) {
      return read_numa_distances(value, server.numa_node_count());
    });
  read_nics(root, server);
  for (const JsonNode& node : root["links"].items(1, "a list of links")) read_links(node, server);
  read_costs(root["costs"], server.costs);
  check_faults(root, server);
  return server;
}

}  // namespace

Result<Server> parse_profile(std::string_view json, const std::string& name) {
  BRAID_LET(document, parse_json(json, name));
  JsonErrors errors(name);
  Server server = read_server(JsonNode(&document, "", &errors));
  BRAID_TRY(errors.first());
  if (const Status status = validate(server); !status.ok())
    return Status::error(name + ": " + status.message());
  return server;
}

Result<Server> load_profile(const std::string& path) {
  const auto text = read_text(path);
  return text.ok() ? parse_profile(text.value(), path) : text.status();
}

}  // namespace braid::topology
