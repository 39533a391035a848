#include "transfer/nic_matrix.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "fabric/gpu/process_driver.h"
#include "transfer/places.h"

namespace braid::transfer {
namespace {

int gpu_count() {
  const cuda::Driver* driver = fabric::gpu::process_driver();
  int count = 0;
  if (driver == nullptr || driver->cuDeviceGetCount(&count) != CUDA_SUCCESS) return 0;
  return count;
}

}  // namespace

std::string write_matrix(const std::vector<NamedPlace>& memories,
                         const std::vector<NamedPlace>& devices,
                         const topology::NumaDistances& distances) {
  std::vector<Place> places;
  for (const NamedPlace& device : devices) places.push_back(device.second);
  nlohmann::ordered_json matrix = nlohmann::ordered_json::object();
  for (const auto& [name, place] : memories) {
    const std::vector<uint8_t> far = tiers(place, places, distances);
    std::vector<size_t> order(devices.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::max(far[a], kOtherNode) < std::max(far[b], kOtherNode);
    });
    auto near = nlohmann::ordered_json::array(), others = nlohmann::ordered_json::array();
    for (const size_t i : order) (far[i] == kNearest ? near : others).push_back(devices[i].first);
    matrix[name] = {near, others};
  }
  return matrix.dump();
}

std::string host_matrix(const topology::Machine& machine, const std::vector<std::string>& devices) {
  Places places(machine);
  std::vector<NamedPlace> memories, found;
  std::vector<int> nodes = machine.numa_nodes();
  if (nodes.empty()) nodes.push_back(0);
  for (const int node : nodes)
    memories.emplace_back("cpu:" + std::to_string(node), Place{false, node, -1, -1});
  for (int gpu = 0; gpu < gpu_count(); ++gpu)
    memories.emplace_back("cuda:" + std::to_string(gpu), places.of_gpu(gpu));
  for (const topology::Nic& nic : machine.nics()) {
    const bool is_wanted = devices.empty() || std::find(devices.begin(), devices.end(),
                                                        nic.rdma_device) != devices.end();
    if (!nic.rdma_device.empty() && is_wanted)
      found.emplace_back(nic.rdma_device, places.of_nic(nic));
  }
  return write_matrix(memories, found, places.distances());
}

}  // namespace braid::transfer
