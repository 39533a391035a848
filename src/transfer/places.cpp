#include "transfer/places.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "fabric/gpu/process_driver.h"

namespace braid::transfer {

/// Asks the kernel's move_pages, which moves nothing if no nodes are given.
Place Places::of_host(const void* address) const {
  if (!knows_) return {};
  void* page = const_cast<void*>(address);
  int node = -1;
  const long failed = syscall(SYS_move_pages, 0, 1UL, &page, nullptr, &node, 0);
  return {false, failed == 0 && node >= 0 ? node : -1, -1};
}

Place Places::of_gpu(int ordinal) {
  const cuda::Driver* driver = fabric::gpu::process_driver();
  CUdevice device = 0;
  std::array<char, 32> bus_id{};
  Place place;
  if (knows_ && driver != nullptr && driver->cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
      driver->cuDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device) ==
          CUDA_SUCCESS)
    place = of_device(bus_id.data());
  place.is_gpu = true;
  place.gpu = ordinal;
  return place;
}

Place Places::of_nic(const topology::Nic& nic) {
  Place place = of_device(nic.pci_bus_id);
  if (place.numa_node < 0) place.numa_node = nic.numa_node;
  const cuda::Driver* driver = fabric::gpu::process_driver();
  int gpus = 0;
  if (place.pcie_switch < 0 || driver == nullptr || driver->cuDeviceGetCount(&gpus) != CUDA_SUCCESS)
    return place;
  for (int gpu = 0; gpu < gpus && place.gpu < 0; ++gpu)
    if (of_gpu(gpu).pcie_switch == place.pcie_switch) place.gpu = gpu;
  return place;
}

Place Places::of_device(const std::string& bus_id) {
  Place place;
  if (!knows_ || bus_id.empty()) return place;
  std::string lower = bus_id;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  const topology::PciPlace found = machine_.find(lower);
  place.numa_node = found.numa_node;
  if (!found.switch_id.empty())
    place.pcie_switch =
        switches_.try_emplace(found.switch_id, static_cast<int>(switches_.size())).first->second;
  return place;
}

}  // namespace braid::transfer
