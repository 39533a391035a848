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

}  // namespace

DeviceFacts device_facts(const cuda::Driver& driver, CUdeviceptr address) {
  DeviceFacts facts;
  unsigned memory_type = 0;
  unsigned is_managed = 0;
  unsigned is_ipc_capable = 0;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,    CU_POINTER_ATTRIBUTE_CONTEXT,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,     CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* values[] = {&memory_type,        &facts.context,           &is_managed,
                    &facts.extent.begin, &facts.extent.size_bytes, &facts.pool,
                    &facts.gpu,          &is_ipc_capable};
  const auto count = static_cast<unsigned>(std::size(attributes));
  if (driver.cuPointerGetAttributes(count, attributes, values, address) != CUDA_SUCCESS) return {};
  facts.is_device = memory_type == CU_MEMORYTYPE_DEVICE && is_managed == 0;
  if (!facts.is_device) return facts;
  if (facts.pool != nullptr) {
    facts.kind = DeviceFacts::Kind::kPooled;
  } else if (facts.context != nullptr) {
    if (is_ipc_capable != 0) facts.kind = DeviceFacts::Kind::kPlain;
  } else if (Extent mapping; is_ipc_capable == 0 && find_mapping(driver, address, mapping)) {
    facts.kind = DeviceFacts::Kind::kMapped;
    facts.extent = mapping;
    facts.extent.is_mapping = true;
  }
  return facts;
}

HostFacts host_facts(const cuda::Driver& driver, CUdeviceptr address) {
  HostFacts facts;
  unsigned memory_type = 0;
  unsigned is_managed = 0;
  CUdeviceptr device_address = 0;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void* values[] = {&memory_type, &is_managed, &device_address, &facts.extent.begin,
                    &facts.extent.size_bytes};
  const auto count = static_cast<unsigned>(std::size(attributes));
  if (driver.cuPointerGetAttributes(count, attributes, values, address) != CUDA_SUCCESS) return {};
  facts.is_known = memory_type != 0;
  // Unified addressing, and no separate mapping.
  facts.is_usable =
      memory_type == CU_MEMORYTYPE_HOST && is_managed == 0 && device_address == address;
  return facts;
}

bool is_host_allocation(const cuda::Driver& driver, CUdeviceptr address) {
  unsigned flags = 0;  // which registered memory has none of
  return driver.cuMemHostGetFlags(&flags, reinterpret_cast<void*>(address)) == CUDA_SUCCESS;
}

bool is_read_only(const cuda::Driver& driver, CUdeviceptr address) {
  unsigned access = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  return ask(driver, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address, access) &&
         access == CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READ;
}

}  // namespace braid::multipath
