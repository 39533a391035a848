#include "multipath/classify.h"

#include <cstdint>

namespace braid::multipath {
namespace {

struct Pointer {
  unsigned memory_type = 0;
  CUcontext context = nullptr;
  unsigned is_managed = 0;
  CUdeviceptr device_address = 0;
  CUdeviceptr range_start = 0;
  size_t range_bytes = 0;
  CUmemoryPool pool = nullptr;
  unsigned is_ipc_capable = 0;
};

bool query(const cuda::Driver& driver, CUdeviceptr address, Pointer& pointer) {
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_CONTEXT,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
      CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
  void* values[] = {&pointer.memory_type,    &pointer.context,       &pointer.is_managed,
                    &pointer.device_address, &pointer.range_start,   &pointer.range_bytes,
                    &pointer.pool,           &pointer.is_ipc_capable};
  return driver.cuPointerGetAttributes(8, attributes, values, address) == CUDA_SUCCESS;
}

bool holds(const Pointer& pointer, CUdeviceptr address, uint64_t size_bytes) {
  const uint64_t before = address - pointer.range_start;
  return address >= pointer.range_start && before <= pointer.range_bytes &&
         size_bytes <= pointer.range_bytes - before;
}

}  // namespace

Classification classify(const cuda::Driver& driver, const Transfer& transfer) {
  Pointer device;
  if (!query(driver, transfer.device, device) || device.memory_type != CU_MEMORYTYPE_DEVICE ||
      device.context == nullptr || device.is_managed != 0 || device.pool != nullptr ||
      device.is_ipc_capable == 0 || !holds(device, transfer.device, transfer.size_bytes))
    return {Verdict::kNotLinear, nullptr};

  Pointer host;
  const auto host_address = reinterpret_cast<CUdeviceptr>(transfer.host);
  if (!query(driver, host_address, host) || host.memory_type == 0)
    return {Verdict::kPageable, nullptr};
  // Kernels on every GPU use the host address itself: unified addressing, and no separate mapping.
  if (host.memory_type != CU_MEMORYTYPE_HOST || host.is_managed != 0 ||
      host.device_address != host_address)
    return {Verdict::kNotLinear, nullptr};
  if (!holds(host, host_address, transfer.size_bytes)) return {Verdict::kPageable, nullptr};
  return {Verdict::kAccelerated, device.context};
}

bool is_pageable_copy(const cuda::Driver& driver, const Transfer& transfer) {
  Pointer host;
  const auto host_address = reinterpret_cast<CUdeviceptr>(transfer.host);
  const bool is_known = query(driver, host_address, host) && host.memory_type != 0;
  if (is_known && (host.memory_type != CU_MEMORYTYPE_HOST || host.is_managed != 0 ||
                   holds(host, host_address, transfer.size_bytes)))
    return false;

  Pointer device;
  if (!query(driver, transfer.device, device) || device.memory_type != CU_MEMORYTYPE_DEVICE ||
      device.is_managed != 0)
    return false;
  if (holds(device, transfer.device, transfer.size_bytes)) return true;
  // Mapped memory may be put together from several pieces; a plain allocation ends where it ends.
  Pointer last;
  return device.is_ipc_capable == 0 &&
         query(driver, transfer.device + transfer.size_bytes - 1, last) &&
         last.memory_type == CU_MEMORYTYPE_DEVICE && last.is_ipc_capable == 0;
}

}  // namespace braid::multipath
