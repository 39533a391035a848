#include "tools/topo_text.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "tools/table.h"
#include "topology/profile.h"

namespace braid::tools {
namespace {

using topology::Figure;
using topology::Hop;
using topology::Link;
using topology::Nearness;
using topology::Path;
using topology::Server;

// Sources, numbered in the order of their first mention.
class Notes {
 public:
  std::string number(const std::string& source) {
    auto found = std::find(sources_.begin(), sources_.end(), source);
    if (found == sources_.end()) found = sources_.insert(sources_.end(), source);
    return fmt::format("[{}]", found - sources_.begin() + 1);
  }

  std::string print() const {
    std::string text;
    for (size_t i = 0; i < sources_.size(); ++i)
      text += fmt::format("  {:<5}{}\n", fmt::format("[{}]", i + 1), sources_[i]);
    return text;
  }

 private:
  std::vector<std::string> sources_;
};

std::string figure(const Figure& at, Notes& notes) {
  if (at.source.empty()) return "";
  return fmt::format("{:.1f} {:<4}", at.value, notes.number(at.source));
}

const std::string& vertex_id(const Server& server, int vertex) {
  return server.vertices[static_cast<size_t>(vertex)].id;
}

std::vector<std::string> visits(const Server& server, const std::vector<Hop>& hops) {
  std::vector<std::string> ids;
  for (const Hop& hop : hops) {
    const Link& link = server.links[static_cast<size_t>(hop.link)];
    if (ids.empty()) ids.push_back(vertex_id(server, hop.forward ? link.from : link.to));
    ids.push_back(vertex_id(server, hop.forward ? link.to : link.from));
  }
  return ids;
}

std::string gpu_table(const Server& server, Notes& notes) {
  Table table({"GPU", "name", "PCI address", "near", "memory, GiB", "SMs", "compute"});
  for (size_t i = 0; i < server.gpus.size(); ++i) {
    const topology::Gpu& gpu = server.gpus[i];
    table.add({fmt::format("gpu{}", i), gpu.name, gpu.pci_bus_id,
               fmt::format("numa{}", gpu.numa_node),
               fmt::format("{:.1f} {:<4}", static_cast<double>(gpu.memory_bytes.value) / (1 << 30),
                           notes.number(gpu.memory_bytes.source)),
               fmt::format("{} {:<4}", gpu.sm_count.value, notes.number(gpu.sm_count.source)),
               fmt::format("{}.{} {:<4}", gpu.compute.value.major, gpu.compute.value.minor,
                           notes.number(gpu.compute.source))});
  }
  return table.print({4, 5});
}

// "gpu0 gpu1 by switch0, gpu2 by numa0"
std::string near_gpus(const Server& server, int nic) {
  const topology::Nic& at = server.nics[static_cast<size_t>(nic)];
  std::vector<std::string> by_switch, by_node, all;
  for (int gpu = 0; gpu < static_cast<int>(server.gpus.size()); ++gpu) {
    const Nearness near = topology::nearness(server, gpu, nic);
    if (near == Nearness::kSameSwitch) by_switch.push_back(fmt::format("gpu{}", gpu));
    if (near == Nearness::kSameNode) by_node.push_back(fmt::format("gpu{}", gpu));
  }
  if (!by_switch.empty())
    all.push_back(
        fmt::format("{} by {}", fmt::join(by_switch, " "), vertex_id(server, at.pcie_switch)));
  if (!by_node.empty())
    all.push_back(fmt::format("{} by numa{}", fmt::join(by_node, " "), at.numa_node));
  return fmt::format("{}", fmt::join(all, ", "));
}

const char* state_name(topology::NicState state) {
  return state == topology::NicState::kUp ? "up" : state == topology::NicState::kDown ? "down" : "";
}

std::vector<std::string> nic_row(const topology::Nic& nic, std::string near) {
  const bool has_speed = !nic.link_gbps.source.empty();
  return {nic.name,
          nic.rdma_device,
          nic.pci_bus_id,
          nic.numa_node < 0 ? "" : fmt::format("numa{}", nic.numa_node),
          has_speed ? fmt::format("{:.3g}", nic.link_gbps.value) : "",
          state_name(nic.state),
          fmt::format("{}", fmt::join(nic.addresses, " ")),
          std::move(near)};
}

Table nic_table(const char* last) {
  return Table({"NIC", "RDMA", "PCI address", "near", "GB/s", "state", "addresses", last});
}

std::string nic_table(const Server& server) {
  if (server.nics.empty()) return "";
  Table table = nic_table("GPUs near");
  for (size_t nic = 0; nic < server.nics.size(); ++nic)
    table.add(nic_row(server.nics[nic], near_gpus(server, static_cast<int>(nic))));
  return "\nNICs\n" + table.print({4});
}

std::string distance_table(const Server& server, Notes& notes) {
  const auto& [distances, source] = server.numa_distances;
  if (distances.nodes.empty()) return "";
  std::vector<std::string> header = {"from"};
  std::vector<size_t> numbers;
  for (const int node : distances.nodes) {
    numbers.push_back(header.size());
    header.push_back(fmt::format("numa{}", node));
  }
  Table table(header);
  for (size_t from = 0; from < distances.rows.size(); ++from) {
    std::vector<std::string> row = {fmt::format("numa{}", from)};
    for (const int distance : distances.rows[from]) row.push_back(std::to_string(distance));
    table.add(row);
  }
  return fmt::format("\nDistances of NUMA nodes {}; 10: within a node\n", notes.number(source)) +
         table.print(numbers);
}

std::string link_table(const Server& server, Notes& notes) {
  Table table({"link", "from", "to", "forward", "backward", "both at once"});
  for (const Link& link : server.links)
    table.add({topology::link_kind_name(link.kind), vertex_id(server, link.from),
               vertex_id(server, link.to), figure(link.forward_gbps, notes),
               figure(link.backward_gbps, notes),
               link.both_gbps.value > 0 ? figure(link.both_gbps, notes) : ""});
  return table.print({3, 4, 5});
}

std::string speed_table(const Server& server, Notes& notes) {
  Table table({"", "", ""});
  const auto add = [&](const char* what, const Figure& at, const char* unit) {
    table.add({what, figure(at, notes), unit});
  };
  add("SMs read host memory", server.kernel.host_read_gbps, "GB/s");
  add("SMs write host memory", server.kernel.host_write_gbps, "GB/s");
  add("one thread block, at most", server.kernel.block_gbps, "GB/s");
  const auto engines = [&](const char* what, const topology::Sourced<int>& count) {
    table.add({what, fmt::format("{} {:<4}", count.value, notes.number(count.source)), "at once"});
  };
  engines("copies host to device", server.copy_engines_h2d);
  engines("copies device to host", server.copy_engines_d2h);
  engines("copies between devices", server.copy_engines_peer);
  return table.print({1}, false);
}

std::string cost_table(const Server& server, Notes& notes) {
  if (server.costs.api_call_us.source.empty()) return "";
  Table table({"cost", "us"});
  for (const topology::CostRow& row : topology::cost_rows())
    table.add({std::string(row.name, std::string_view(row.name).size() - 3),
               figure(server.costs.*row.figure, notes)});
  return "\nCosts beside the bytes\n" + table.print({1});
}

std::string path_table(const Server& server, int target) {
  const int node = server.gpus[static_cast<size_t>(target)].numa_node;
  Table table({"through", "GB/s", "sockets", "way"});
  for (const Path& path : topology::paths_to(server, target, node)) {
    table.add({path.relay < 0 ? "direct" : fmt::format("gpu{}", path.relay),
               fmt::format("{:.1f}", path.gbps), path.crosses_socket ? "crosses" : "",
               fmt::format("{}", fmt::join(visits(server, path.hops), " > "))});
  }
  return fmt::format("\nPaths from memory{} to gpu{}; GB/s of the narrowest link\n", node, target) +
         table.print({1});
}

using Json = nlohmann::ordered_json;

Json path_json(const Server& server, const Path& path, int numa_node) {
  Json json;
  json["target"] = path.target;
  json["relay"] = path.relay < 0 ? Json(nullptr) : Json(path.relay);
  json["numa_node"] = numa_node;
  json["narrowest_gbps"] = path.gbps;
  json["crosses_socket"] = path.crosses_socket;
  json["way"] = visits(server, path.hops);
  return json;
}

Json nic_json(const topology::Nic& nic) {
  Json json{{"name", nic.name}};
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Json(nullptr) : Json(text);
  };
  json["rdma_device"] = text_or_null(nic.rdma_device);
  json["pci_bus_id"] = text_or_null(nic.pci_bus_id);
  json["bridges"] = nic.bridges;
  json["numa_node"] = nic.numa_node < 0 ? Json(nullptr) : Json(nic.numa_node);
  json["link_gbps"] = nic.link_gbps.source.empty() ? Json(nullptr) : Json(nic.link_gbps.value);
  json["state"] = text_or_null(state_name(nic.state));
  json["addresses"] = nic.addresses;
  return json;
}

Json near_json(const Server& server, int gpu) {
  const auto names = [&](Nearness near) {
    Json list = Json::array();
    for (const int nic : topology::nics_near(server, gpu, near))
      list.push_back(server.nics[static_cast<size_t>(nic)].name);
    return list;
  };
  return {{"gpu", gpu},
          {"same_switch", names(Nearness::kSameSwitch)},
          {"same_numa_node", names(Nearness::kSameNode)}};
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string topo_text(const Server& server) {
  Notes notes;
  std::string text = fmt::format("{}: {}\n\nGPUs\n", server.name, server.description);
  text += gpu_table(server, notes);
  text += nic_table(server);
  text += distance_table(server, notes);
  text += "\nLinks, GB/s (10^9 bytes a second)\n" + link_table(server, notes);
  text += "\nEach GPU\n" + speed_table(server, notes);
  text += cost_table(server, notes);
  for (size_t gpu = 0; gpu < server.gpus.size(); ++gpu)
    text += path_table(server, static_cast<int>(gpu));
  return text + "\nSources\n" + notes.print();
}

std::string topo_json(const Server& server) {
  Json json;
  json["server"] = Json::parse(topology::write_profile(server));
  json["paths"] = Json::array();
  for (size_t gpu = 0; gpu < server.gpus.size(); ++gpu) {
    const int node = server.gpus[gpu].numa_node;
    for (const Path& path : topology::paths_to(server, static_cast<int>(gpu), node))
      json["paths"].push_back(path_json(server, path, node));
  }
  json["nics"] = Json::array();
  for (const topology::Nic& nic : server.nics) json["nics"].push_back(nic_json(nic));
  json["near_nics"] = Json::array();
  for (size_t gpu = 0; gpu < server.gpus.size(); ++gpu)
    json["near_nics"].push_back(near_json(server, static_cast<int>(gpu)));
  return dump(json);
}

std::string nics_text(const std::vector<topology::Nic>& nics) {
  Table table = nic_table("below the bridges");
  for (const topology::Nic& nic : nics)
    table.add(nic_row(nic, fmt::format("{}", fmt::join(nic.bridges, " > "))));
  return table.print({4});
}

std::string nics_json(const std::vector<topology::Nic>& nics) {
  Json json{{"nics", Json::array()}};
  for (const topology::Nic& nic : nics) json["nics"].push_back(nic_json(nic));
  return dump(json);
}

}  // namespace braid::tools
