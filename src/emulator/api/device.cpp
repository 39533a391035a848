// Devices: count, names, identifiers.
#include <cstdio>
#include <string>

#include "emulator/api/device.h"
#include "emulator/api/entry.h"
#include "emulator/constants.h"
#include "emulator/model/gpu_uuid.h"

namespace braid::emulator {

CUresult check_device(const Call& call, CUdevice device) {
  return device >= 0 && device < call.world.device_count() ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_DEVICE;
}

namespace {

CUresult get(Call& call, CUdevice* device, int ordinal) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, ordinal));
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult get_count(Call& call, int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = call.world.device_count();
  return CUDA_SUCCESS;
}

CUresult copy_text(const std::string& text, char* out, int size) {
  if (out == nullptr || size <= 0) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(out, static_cast<size_t>(size), "%s", text.c_str());
  return CUDA_SUCCESS;
}

CUresult get_name(Call& call, char* name, int size, CUdevice device) {
  BRAID_TRY(check_device(call, device));
  return copy_text(call.world.gpu_of(device).name, name, size);
}

CUresult get_pci_bus_id(Call& call, char* id, int size, CUdevice device) {
  BRAID_TRY(check_device(call, device));
  return copy_text(call.world.gpu_of(device).pci_bus_id, id, size);
}

CUresult get_by_pci_bus_id(Call& call, CUdevice* device, const char* id) {
  if (device == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PciAddress wanted;
  if (!parse_pci(id, wanted)) return CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < call.world.device_count(); ++i) {
    PciAddress own;
    if (parse_pci(call.world.gpu_of(i).pci_bus_id, own) && own == wanted) {
      *device = i;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult get_uuid(Call& call, CUuuid* uuid, CUdevice device) {
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, device));
  *uuid = gpu_uuid(call.world.server, call.world.visible[device]);
  return CUDA_SUCCESS;
}

CUresult get_total_memory(Call& call, size_t* bytes, CUdevice device) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, device));
  *bytes = call.world.gpu_of(device).memory_bytes.value;
  return CUDA_SUCCESS;
}

CUresult get_compute_capability(Call& call, int* major, int* minor, CUdevice device) {
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, device));
  *major = call.world.gpu_of(device).compute.value.major;
  *minor = call.world.gpu_of(device).compute.value.minor;
  return CUDA_SUCCESS;
}

CUresult get_attribute(Call& call, int* value, CUdevice_attribute attribute, CUdevice device) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, device));
  return device_attribute(call.world, device, attribute, *value);
}

CUresult get_properties(Call& call, CUdevprop* properties, CUdevice device) {
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, device));
  const auto value = [&](CUdevice_attribute attribute) {
    int number = 0;
    static_cast<void>(device_attribute(call.world, device, attribute, number));
    return number;
  };
  *properties = {};
  properties->maxThreadsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  properties->maxThreadsDim[0] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  properties->maxThreadsDim[1] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  properties->maxThreadsDim[2] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  properties->maxGridSize[0] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  properties->maxGridSize[1] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  properties->maxGridSize[2] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  properties->sharedMemPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  properties->totalConstantMemory = value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  properties->SIMDWidth = value(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  properties->memPitch = value(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  properties->regsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  properties->clockRate = value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  properties->textureAlign = value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY(cuDeviceGet, 2, get)
BRAID_ENTRY(cuDeviceGetCount, 1, get_count)
BRAID_ENTRY(cuDeviceGetName, 3, get_name)
BRAID_ENTRY(cuDeviceGetPCIBusId, 3, get_pci_bus_id)
BRAID_ENTRY(cuDeviceGetByPCIBusId, 2, get_by_pci_bus_id)
BRAID_ENTRY_V2(cuDeviceGetUuid, 2, get_uuid)
BRAID_ENTRY(cuDeviceTotalMem_v2, 2, get_total_memory)
BRAID_ENTRY(cuDeviceComputeCapability, 3, get_compute_capability)
BRAID_ENTRY(cuDeviceGetAttribute, 3, get_attribute)
BRAID_ENTRY(cuDeviceGetProperties, 2, get_properties)

}  // namespace braid::emulator
