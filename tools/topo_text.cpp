#include "tools/topo_text.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "topology/profile.h"

namespace braid::tools {
namespace {

using topology::Figure;
using topology::Hop;
using topology::Link;
using topology::Path;
using topology::Server;

// Rows of cells, printed as columns. A column whose cells are all empty is left out.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  // `right`: columns whose cells stand at the right.
  // `head`: with the first row.
  std::string print(const std::vector<size_t>& right, bool head = true) const {
    std::vector<size_t> widths(rows_.front().size(), 0);
    std::vector<bool> used(widths.size(), false);
    for (size_t row = head ? 0 : 1; row < rows_.size(); ++row)
      for (size_t column = 0; column < widths.size(); ++column) {
        widths[column] = std::max(widths[column], rows_[row][column].size());
        used[column] = used[column] || (row > 0 && !rows_[row][column].empty());
      }
    std::string text;
    for (size_t index = head ? 0 : 1; index < rows_.size(); ++index) {
      const auto& row = rows_[index];
      std::string line;
      for (size_t column = 0; column < row.size(); ++column) {
        if (!used[column]) continue;
        const bool at_right = std::find(right.begin(), right.end(), column) != right.end();
        line += at_right ? fmt::format("  {:>{}}", row[column], widths[column])
                         : fmt::format("  {:<{}}", row[column], widths[column]);
      }
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

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

}  // namespace

std::string topo_text(const Server& server) {
  Notes notes;
  std::string text = fmt::format("{}: {}\n\nGPUs\n", server.name, server.description);
  text += gpu_table(server, notes);
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
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace braid::tools
