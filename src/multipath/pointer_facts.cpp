#include "multipath/pointer_facts.h"

#include <iterator>

namespace braid::multipath {
namespace {

// cuPointerGetAttributes does not promise to know the attributes that are asked one by one.
template <typename Value>
bool ask(const cuda::Driver& driver, CUpointer_attribute attribute, CUdeviceptr address,
         Value& value) {
  return driver.cuPointerGetAttribute(&value, attribute, address) == CUDA_SUCCESS;
}

// The driver's "range" of mapped memory may be all that was reserved, with holes and with mappings
// of different access in it.
bool find_mapping(const cuda::Driver& driver, CUdeviceptr address, Extent& mapping) {
  return ask(driver, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address, mapping.begin) &&
         ask(driver, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address, mapping.size_bytes) &&
         mapping.holds(address, 1);
}

void judge(const cuda::Driver& driver, CUdeviceptr address, bool is_ipc_capable,
           DeviceFacts& facts) {
  if (facts.pool != nullptr) {
    facts.kind = DeviceFacts::Kind::kPooled;
  } else if (facts.context != nullptr) {
    if (is_ipc_capable) facts.kind = DeviceFacts::Kind::kPlain;
  } else if (Extent mapping; !is_ipc_capable && find_mapping(driver, address, mapping)) {
    facts.kind = DeviceFacts::Kind::kMapped;
    facts.extent = mapping;
    facts.extent.is_mapping = true;
  }
}

}  // namespace

PointerFacts pointer_facts(const cuda::Driver& driver, CUdeviceptr address) {
  PointerFacts facts;
  unsigned is_managed = 0;
  unsigned is_ipc_capable = 0;
  CUdeviceptr device_address = 0;
  Extent extent;
  DeviceFacts device;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_CONTEXT,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  void* values[] = {&facts.memory_type, &device.context,    &is_managed,
                    &extent.begin,      &extent.size_bytes, &device.pool,
                    &device.gpu,        &is_ipc_capable,    &device_address};
  const auto count = static_cast<unsigned>(std::size(attributes));
  if (driver.cuPointerGetAttributes(count, attributes, values, address) != CUDA_SUCCESS) return {};
  // Unified addressing, and no separate mapping. What has no context (cuMemMap, pools) is reached
  // by those GPUs alone that were given access, and its range may have holes.
  const bool is_reached_by_all = device.context != nullptr && device.pool == nullptr;
  facts.host = {.is_known = facts.memory_type != 0,
                .is_usable = facts.memory_type == CU_MEMORYTYPE_HOST && is_managed == 0 &&
                             device_address == address && is_reached_by_all,
                .extent = extent};
  facts.device = device;
  facts.device.extent = extent;
  facts.device.is_device = facts.memory_type == CU_MEMORYTYPE_DEVICE && is_managed == 0;
  if (facts.device.is_device) judge(driver, address, is_ipc_capable != 0, facts.device);
  return facts;
}

// The attribute of an address that the driver does not know, asked by itself, costs six times as
// much as in a list (H200, driver 580: 0.87 and 0.14 us).
bool is_known(const cuda::Driver& driver, CUdeviceptr address) {
  unsigned memory_type = 0;
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  void* value = &memory_type;
  return driver.cuPointerGetAttributes(1, &attribute, &value, address) == CUDA_SUCCESS &&
         memory_type != 0;
}

bool is_read_only(const cuda::Driver& driver, CUdeviceptr address) {
  unsigned access = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  return ask(driver, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address, access) &&
         access == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ;
}

}  // namespace braid::multipath
