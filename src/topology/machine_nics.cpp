// Machine: network interfaces and RDMA devices.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "topology/machine.h"

namespace braid::topology {
namespace {
namespace fs = std::filesystem;

constexpr double kMegabitGbps = 1e-3 / 8;  // of 10^9 bytes a second
constexpr double kGigabitGbps = 1.0 / 8;

/// The names in a folder of sysfs, sorted.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// The last PCI device on the way to this folder; a virtual device's has none.
std::string bus_id_of(const fs::path& folder) {
  std::error_code error;
  std::string bus_id;
  for (const fs::path& part : fs::canonical(folder, error))
    if (is_bus_id(part.string())) bus_id = part.string();
  return bus_id;
}

Figure speed(double gbps, const char* source) { return gbps > 0 ? Figure{gbps, source} : Figure{}; }

/// "fe80::1%eth0" is of no use to others, who have other interfaces.
bool is_link_local(const sockaddr& address) {
  if (address.sa_family != AF_INET6) return false;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

std::string text_of(const sockaddr& address) {
  char text[NI_MAXHOST] = {};
  const socklen_t size_bytes =
      address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const int answer =
      getnameinfo(&address, size_bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return answer == 0 ? text : "";
}

void add_addresses(const ifaddrs* first, int family, std::vector<Nic>& nics) {
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family) continue;
    const auto nic = std::find_if(nics.begin(), nics.end(),
                                  [&](const Nic& known) { return known.name == at->ifa_name; });
    if (nic != nics.end() && !is_link_local(*at->ifa_addr))
      nic->addresses.push_back(text_of(*at->ifa_addr));
  }
}

}  // namespace

std::vector<Nic> Machine::nics() const {
  std::vector<Nic> nics;
  for (const std::string& name : names_in(fs::path(root_) / "sys/class/net"))
    nics.push_back(read_nic(name));
  for (const std::string& name : names_in(fs::path(root_) / "sys/class/infiniband"))
    add_rdma_device(name, nics);
  std::sort(nics.begin(), nics.end(), [](const Nic& a, const Nic& b) { return a.name < b.name; });
  return nics;
}

Nic Machine::read_nic(const std::string& interface) const {
  const std::string folder = "sys/class/net/" + interface + "/";
  Nic nic;
  nic.name = interface;
  // Loopback's state is "unknown", since nothing tells whether it has a carrier.
  const std::string state = read(folder + "operstate");
  const bool is_up = state == "up" || (state == "unknown" && read(folder + "carrier") == "1");
  nic.state = is_up ? NicState::kUp : NicState::kDown;
  nic.link_gbps =
      speed(std::strtod(read(folder + "speed").c_str(), nullptr) * kMegabitGbps, "sysfs");
  set_place(folder + "device", nic);
  return nic;
}

/// An RDMA device belongs to the interface that its first port names; InfiniBand without one stands
/// for itself.
void Machine::add_rdma_device(const std::string& device, std::vector<Nic>& nics) const {
  const std::string folder = "sys/class/infiniband/" + device + "/";
  std::string interface = read(folder + "ports/1/gid_attrs/ndevs/0");
  if (interface.empty()) {
    const auto names = names_in(fs::path(root_) / folder / "device/net");
    if (!names.empty()) interface = names.front();
  }
  auto nic = std::find_if(nics.begin(), nics.end(),
                          [&](const Nic& known) { return known.name == interface; });
  if (nic == nics.end()) {
    nic = nics.insert(nic, Nic());
    nic->name = device;
    const std::string state = read(folder + "ports/1/state");
    nic->state = state.find("ACTIVE") != std::string::npos ? NicState::kUp : NicState::kDown;
    set_place(folder + "device", *nic);
  }
  nic->rdma_device = device;
  if (nic->link_gbps.source.empty())
    nic->link_gbps =
        speed(std::strtod(read(folder + "ports/1/rate").c_str(), nullptr) * kGigabitGbps, "sysfs");
}

void Machine::set_place(const std::string& device_folder, Nic& nic) const {
  nic.pci_bus_id = bus_id_of(fs::path(root_) / device_folder);
  if (nic.pci_bus_id.empty()) return;
  const PciPlace place = find(nic.pci_bus_id);
  nic.bridges = place.bridges;
  nic.numa_node = place.numa_node;
}

std::vector<Nic> host_nics() {
  std::vector<Nic> nics = Machine().nics();
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return nics;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(found, freeifaddrs);
  add_addresses(found, AF_INET, nics);
  add_addresses(found, AF_INET6, nics);
  return nics;
}

}  // namespace braid::topology
