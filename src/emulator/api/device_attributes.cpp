// cuDeviceGetAttribute's values. What the emulated server does not have (textures, IPC events,
// pools shared between processes) reads 0, as on hardware without it.
#include <cstdio>
#include <map>
#include <optional>

#include "emulator/api/device.h"
#include "emulator/constants.h"

namespace braid::emulator {
namespace {

// The last attribute of CUDA 13.0; a later one is unknown here, and CUDA_ERROR_INVALID_VALUE.
constexpr int kLastAttribute = 147;

// The same for compute capabilities 8.0, 9.0 and 10.0 unless noted (CUDA programming guide,
// "Compute capabilities").
const std::map<int, int>& common_values() {
  static const auto* values = new std::map<int, int>{
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_PITCH, kMaxPitchBytes},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
      {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
      {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
      {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
      {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
      {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2619000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, kThreadsPerMultiprocessor},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
      {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 1},
      {CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, CU_DEVICE_NUMA_CONFIG_NONE},
      {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
  };
  return *values;
}

int pci_part(const topology::Gpu& gpu, unsigned PciAddress::*part) {
  PciAddress address;
  return parse_pci(gpu.pci_bus_id, address) ? static_cast<int>(address.*part) : 0;
}

// What GPUs and servers differ in.
std::optional<int> own_value(const World& world, CUdevice device, CUdevice_attribute attribute) {
  const topology::Gpu& gpu = world.gpu_of(device);
  const topology::Server& server = world.server;
  switch (static_cast<int>(attribute)) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return gpu.sm_count.value;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return gpu.compute.value.major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return gpu.compute.value.minor;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: return pci_part(gpu, &PciAddress::domain);
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return pci_part(gpu, &PciAddress::bus);
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: return pci_part(gpu, &PciAddress::device);
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: return gpu.numa_node;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      return world.variant.compute_mode_of(world.visible[static_cast<size_t>(device)]);
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return server.copy_engines_h2d.value + server.copy_engines_d2h.value +
             server.copy_engines_peer.value;
    default: return std::nullopt;
  }
}

}  // namespace

bool parse_pci(const std::string& text, PciAddress& address) {
  unsigned function = 0;
  if (std::sscanf(text.c_str(), "%x:%x:%x.%x", &address.domain, &address.bus, &address.device,
                  &function) >= 3)
    return true;
  address.domain = 0;
  return std::sscanf(text.c_str(), "%x:%x.%x", &address.bus, &address.device, &function) >= 2;
}

CUresult device_attribute(const World& world, CUdevice device, CUdevice_attribute attribute,
                          int& value) {
  if (attribute < 1 || attribute > kLastAttribute) return CUDA_ERROR_INVALID_VALUE;
  const auto common = common_values().find(attribute);
  value = own_value(world, device, attribute)
              .value_or(common == common_values().end() ? 0 : common->second);
  return CUDA_SUCCESS;
}

}  // namespace braid::emulator
