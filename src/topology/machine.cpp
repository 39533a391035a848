#include "topology/machine.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace braid::topology {
namespace {
namespace fs = std::filesystem;

int to_int(const std::string& text, int otherwise) {
  int value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

bool is_bus_id(const std::string& text) {
  return text.size() >= 12 && std::count(text.begin(), text.end(), ':') == 2 &&
         text[text.size() - 2] == '.';
}

std::vector<int> parse_list(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const int first = to_int(item, -1);
    const size_t dash = item.find('-');
    const int last = dash == std::string::npos ? first : to_int(item.substr(dash + 1), first);
    if (first < 0 || last - first > 4096) continue;
    for (int number = first; number <= last; ++number) numbers.push_back(number);
  }
  return numbers;
}

int pcie_generation(const std::string& speed) {
  const double gigatransfers = std::strtod(speed.c_str(), nullptr);
  int generation = 0;
  for (const double least : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0})
    if (gigatransfers >= least) ++generation;
  return generation;
}

std::string Machine::read(const std::string& path) const {
  std::ifstream file(fs::path(root_) / path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<int> Machine::numa_nodes() const {
  const std::vector<int> with_cpus = parse_list(read("sys/devices/system/node/has_cpu"));
  std::vector<int> nodes;
  for (const int node : parse_list(read("sys/devices/system/node/has_memory")))
    if (std::find(with_cpus.begin(), with_cpus.end(), node) != with_cpus.end())
      nodes.push_back(node);
  return nodes;
}

// Each node has a row, with a column for each node that is online.
NumaDistances Machine::numa_distances() const {
  NumaDistances distances{parse_list(read("sys/devices/system/node/online")), {}};
  for (const int node : distances.nodes) {
    std::istringstream row(
        read("sys/devices/system/node/node" + std::to_string(node) + "/distance"));
    distances.rows.emplace_back(std::istream_iterator<int>(row), std::istream_iterator<int>());
  }
  return flaw_of(distances).empty() ? distances : NumaDistances{};
}

std::vector<int> Machine::cpus_of_node(int node) const {
  return parse_list(read("sys/devices/system/node/node" + std::to_string(node) + "/cpulist"));
}

PcieSpeed Machine::read_link(const std::string& device) const {
  // The speed that the link can have, for idle links slow down; the lanes that it has.
  const std::string folder = "sys/bus/pci/devices/" + device + "/";
  return {pcie_generation(read(folder + "max_link_speed")),
          to_int(read(folder + "current_link_width"), 0)};
}

PciPlace Machine::find(const std::string& bus_id) const {
  PciPlace place;
  std::error_code error;
  const fs::path device = fs::canonical(fs::path(root_) / "sys/bus/pci/devices" / bus_id, error);
  if (error) return place;
  place.found = true;
  place.numa_node = to_int(read("sys/bus/pci/devices/" + bus_id + "/numa_node"), -1);
  place.link = read_link(bus_id);
  // The canonical path names what lies above: .../root port/upstream port/downstream port/device.
  for (const fs::path& part : device.parent_path())
    if (is_bus_id(part.string())) place.bridges.push_back(part.string());
  if (place.bridges.size() < 3) return place;
  place.switch_id = place.bridges[place.bridges.size() - 2];
  place.switch_link = read_link(place.switch_id);
  return place;
}

}  // namespace braid::topology
