#include "topology/discover.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "base/try.h"
#include "topology/facts.h"

namespace braid::topology {
namespace {

int attribute(const cuda::Driver& driver, CUdevice_attribute which, CUdevice device,
              int otherwise) {
  int value = otherwise;
  return driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : otherwise;
}

// "0000:1B:00.0" to "0000:1b:00.0", as sysfs has it.
std::string lower(std::string text) {
  for (char& at : text) at = static_cast<char>(std::tolower(static_cast<unsigned char>(at)));
  return text;
}

Result<GpuFacts> ask_driver(const cuda::Driver& driver, CUdevice device) {
  GpuFacts gpu;
  char name[256] = {};
  char bus_id[64] = {};
  size_t memory_bytes = 0;
  const std::string who = " of GPU " + std::to_string(device);
  BRAID_TRY(driver.check(driver.cuDeviceGetName(name, sizeof(name), device), "the name" + who));
  BRAID_TRY(driver.check(driver.cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), device),
                         "the PCI address" + who));
  BRAID_TRY(driver.check(driver.cuDeviceTotalMem(&memory_bytes, device), "the memory size" + who));
  gpu.name = name;
  gpu.pci_bus_id = lower(bus_id);
  gpu.memory_bytes = memory_bytes;
  gpu.sm_count = attribute(driver, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device, 0);
  gpu.compute_major = attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device, 0);
  gpu.compute_minor = attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device, 0);
  gpu.numa_node = attribute(driver, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device, -1);
  return gpu;
}

// Those of `nodes`, kernel numbers, which are numbered from 0 from now on.
NumaDistances distances_of(const std::vector<int>& nodes, const NumaDistances& all) {
  NumaDistances some;
  for (const int from : nodes) {
    some.nodes.push_back(static_cast<int>(some.nodes.size()));
    some.rows.emplace_back();
    for (const int to : nodes) {
      const auto distance = all.between(from, to);
      if (!distance) return {};
      some.rows.back().push_back(*distance);
    }
  }
  return some;
}

// Kernel numbers of NUMA nodes to indices from 0. When sysfs knows none of the GPUs, its nodes are
// not theirs either, and the driver's word is all there is.
void number_nodes(MachineFacts& facts, const Machine& machine, bool places_known) {
  std::vector<int> nodes;
  if (places_known) nodes = machine.numa_nodes();
  for (const GpuFacts& gpu : facts.gpus)
    if (gpu.numa_node >= 0) nodes.push_back(gpu.numa_node);
  if (nodes.empty()) nodes.push_back(0);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  facts.numa_nodes = static_cast<int>(nodes.size());
  if (places_known) facts.numa_distances = distances_of(nodes, machine.numa_distances());
  const auto index_of = [&](int node, int otherwise) {
    const auto found = std::find(nodes.begin(), nodes.end(), node);
    return found == nodes.end() ? otherwise : static_cast<int>(found - nodes.begin());
  };
  for (GpuFacts& gpu : facts.gpus) gpu.numa_node = index_of(gpu.numa_node, 0);
  const int only = nodes.size() == 1 ? 0 : -1;
  for (Nic& nic : facts.nics)
    if (!nic.is_virtual()) nic.numa_node = index_of(nic.numa_node, only);
}

void ask_machine(MachineFacts& facts) {
  const Machine machine;
  bool places_known = false;
  for (GpuFacts& gpu : facts.gpus) {
    const PciPlace place = machine.find(gpu.pci_bus_id);
    if (!place.found) continue;
    places_known = true;
    if (place.numa_node >= 0) gpu.numa_node = place.numa_node;
    if (place.link.known()) {
      gpu.pcie = place.link;
      gpu.pcie_from = "sysfs";
    }
    gpu.switch_id = place.switch_id;
    gpu.switch_pcie = place.switch_link;
    gpu.bridges = place.bridges;
  }
  facts.nics = host_nics();
  number_nodes(facts, machine, places_known);
}

// A peer with native atomics is reached over NVLink: PCIe has none between GPUs.
bool driver_says_joined(const cuda::Driver& driver, CUdevice from, CUdevice to) {
  int access = 0;
  int atomics = 0;
  return driver.cuDeviceCanAccessPeer(&access, from, to) == CUDA_SUCCESS && access != 0 &&
         driver.cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                        from, to) == CUDA_SUCCESS &&
         atomics != 0;
}

void ask_peers(const cuda::Driver& driver, const std::vector<CUdevice>& devices,
               MachineFacts& facts) {
  const size_t count = facts.gpus.size();
  facts.joined.assign(count, std::vector<bool>(count, false));
  facts.joined_from = "the CUDA driver";
  for (size_t a = 0; a < count; ++a)
    for (size_t b = 0; b < count; ++b)
      facts.joined[a][b] = a != b && driver_says_joined(driver, devices[a], devices[b]);
}

void ask_nvml(const Nvml& nvml, MachineFacts& facts) {
  std::vector<void*> devices;
  for (GpuFacts& gpu : facts.gpus) {
    devices.push_back(nvml.find(gpu.pci_bus_id, gpu.name));
    if (devices.back() == nullptr) return;
    gpu.nvlink = nvml.nvlink(devices.back());
    if (const PcieSpeed pcie = nvml.pcie(devices.back()); pcie.known()) {
      gpu.pcie = pcie;
      gpu.pcie_from = "NVML";
    }
  }
  for (size_t a = 0; a < devices.size(); ++a)
    for (size_t b = 0; b < devices.size(); ++b) {
      if (a == b) continue;
      const auto joined = nvml.joined(devices[a], devices[b]);
      if (!joined) return;
      facts.joined[a][b] = *joined;
      facts.joined_from = "NVML";
    }
}

std::string describe(const MachineFacts& facts) {
  std::map<std::string, int> names;
  for (const GpuFacts& gpu : facts.gpus) ++names[gpu.name];
  std::string text;
  for (const auto& [name, count] : names)
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + name;
  return text + ", as this process sees them; capacities are estimates, not measurements";
}

}  // namespace

Result<Server> discover(const cuda::Driver& driver) {
  Status status = driver.check(driver.cuInit(0), "starting the CUDA driver");
  int count = 0;
  if (status.ok()) status = driver.check(driver.cuDeviceGetCount(&count), "counting GPUs");
  if (status.ok() && count == 0) status = Status::error("the CUDA driver shows no GPU");
  if (!status.ok())
    return Status::error(status.message(),
                         "Check nvidia-smi and CUDA_VISIBLE_DEVICES, or look at an emulated "
                         "server (--server h20x8)");
  MachineFacts facts;
  std::vector<CUdevice> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    BRAID_TRY(driver.check(driver.cuDeviceGet(&device, ordinal), "GPU " + std::to_string(ordinal)));
    BRAID_LET(gpu, ask_driver(driver, device));
    facts.gpus.push_back(std::move(gpu));
    devices.push_back(device);
  }
  ask_machine(facts);
  ask_peers(driver, devices, facts);
  if (const auto nvml = Nvml::open()) ask_nvml(*nvml, facts);
  facts.description = describe(facts);
  Server server = estimate_server(facts);
  if (status = validate(server); !status.ok())
    return Status::error("what was found of this server makes no sense: " + status.message(),
                         "Describe it in a profile and use --server");
  return server;
}

}  // namespace braid::topology
