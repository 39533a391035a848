// Virtual memory management: reserving addresses, making memory, mapping one to the other, granting
// access, sharing by file descriptor.
#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "emulator/api/location.h"
#include "emulator/model/access.h"

namespace braid::emulator {
namespace {

bool is_granular(uint64_t value) { return value % kMappingGranularity == 0; }

CUresult reserve(Call& call, CUdeviceptr* out, size_t size_bytes, size_t alignment,
                 CUdeviceptr hint, unsigned long long flags) {
  constexpr uint64_t kHostPage = 4096;
  if (out == nullptr || size_bytes == 0 || size_bytes % kHostPage != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (hint % kHostPage != 0 || (alignment != 0 && !std::has_single_bit(alignment)))
    return CUDA_ERROR_INVALID_VALUE;
  const auto address = call.world.memory.reservations().reserve(
      size_bytes, std::max<uint64_t>(alignment, kMappingGranularity), hint);
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = *address;
  return CUDA_SUCCESS;
}

CUresult free_range(Call& call, CUdeviceptr address, size_t size_bytes) {
  Memory& memory = call.world.memory;
  const Reservations::Range* range = memory.reservations().find(address);
  if (range == nullptr || range->address != address || range->size_bytes != size_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (memory.overlaps(address, size_bytes)) return CUDA_ERROR_INVALID_VALUE;
  memory.reservations().release(address);
  return CUDA_SUCCESS;
}

Found<Place> find_place_for(const Call& call, const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->win32HandleMetaData != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(place, find_place(call, properties->location));
  const int handles = properties->requestedHandleTypes;
  if (properties->location.type == CU_MEM_LOCATION_TYPE_HOST && handles != CU_MEM_HANDLE_TYPE_NONE)
    return CUDA_ERROR_INVALID_VALUE;
  if (handles != CU_MEM_HANDLE_TYPE_NONE && handles != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_NOT_SUPPORTED;
  if (properties->allocFlags.usage != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return place;
}

CUresult create(Call& call, CUmemGenericAllocationHandle* out, size_t size_bytes,
                const CUmemAllocationProp* wanted, unsigned long long flags) {
  if (out == nullptr || size_bytes == 0 || !is_granular(size_bytes) || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(place, find_place_for(call, wanted));
  CUmemAllocationProp properties = *wanted;
  properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE;  // a wish, not granted
  properties.allocFlags.gpuDirectRDMACapable = 0;
  Memory& memory = call.world.memory;
  Arena* arena = place.is_gpu() ? &memory.arena(place.number()) : nullptr;
  const PhysicalPtr made = PhysicalMemory::create(properties, place, arena, size_bytes);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = memory.physical().add_reference(made);
  return CUDA_SUCCESS;
}

CUresult release(Call& call, CUmemGenericAllocationHandle handle) {
  PhysicalHandles& handles = call.world.memory.physical();
  if (handles.find(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  handles.release(handle);
  return CUDA_SUCCESS;
}

CUresult map(Call& call, CUdeviceptr address, size_t size_bytes, size_t offset,
             CUmemGenericAllocationHandle handle, unsigned long long flags) {
  Memory& memory = call.world.memory;
  const PhysicalPtr physical = memory.physical().find(handle);
  const Reservations::Range* range = memory.reservations().find(address);
  if (physical == nullptr || range == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (size_bytes == 0 || !is_granular(size_bytes) || !is_granular(address) || offset != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (size_bytes > physical->size_bytes() ||
      size_bytes > range->address + range->size_bytes - address)
    return CUDA_ERROR_INVALID_VALUE;
  if (memory.overlaps(address, size_bytes)) return CUDA_ERROR_INVALID_VALUE;
  const bool mapped = memory.add_mapped(address, size_bytes, physical) != nullptr;
  return mapped ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// The mappings that make up the range, whole and without holes; none when it is not so.
std::vector<Allocation*> find_mappings(Memory& memory, uint64_t address, uint64_t size_bytes) {
  std::vector<Allocation*> found;
  const Allocation* first = memory.find(address, size_bytes, [&](const Allocation& allocation) {
    return allocation.kind == Allocation::Kind::kMapped;
  });
  if (first == nullptr || first->address != address) return found;
  uint64_t reached = address;
  for (; reached - address < size_bytes; reached = found.back()->end())
    found.push_back(memory.find(reached));
  if (reached - address != size_bytes) found.clear();
  return found;
}

// Does not wait: work that gets to the range later faults there.
CUresult unmap(Call& call, CUdeviceptr address, size_t size_bytes) {
  Memory& memory = call.world.memory;
  const std::vector<Allocation*> mappings = find_mappings(memory, address, size_bytes);
  if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (Allocation* mapping : mappings) memory.remove(mapping);
  call.world.wrote(address, size_bytes);  // who waits for a value there looks, and faults
  return CUDA_SUCCESS;
}

CUresult set_access(Call& call, CUdeviceptr address, size_t size_bytes,
                    const CUmemAccessDesc* wanted, size_t count) {
  if (wanted == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  wait_to_set_access(call);
  Memory& memory = call.world.memory;
  const std::vector<Allocation*> mappings = find_mappings(memory, address, size_bytes);
  if (mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const Allocation* mapping : mappings) {  // all are checked before any is changed
    Grants unused;
    BRAID_TRY(grant(call, mapping->place, wanted, count, unused));
  }
  for (const Allocation* mapping : mappings) {
    BRAID_TRY(grant(call, mapping->place, wanted, count, *mapping->grants));
    if (!mapping->is_host()) continue;
    if (!memory.reservations().set_cpu_access(mapping->address, mapping->size_bytes,
                                              *mapping->physical, cpu_may(*mapping)))
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUresult get_access(Call& call, unsigned long long* flags, const CUmemLocation* location,
                    CUdeviceptr address) {
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(accessor, find_accessor(call, *location));
  const Allocation* mapping = call.world.memory.find(address);
  if (mapping == nullptr || mapping->kind != Allocation::Kind::kMapped)
    return CUDA_ERROR_INVALID_VALUE;
  *flags = granted_to(*mapping->grants, accessor);
  return CUDA_SUCCESS;
}

CUresult get_granularity(Call& call, size_t* out, const CUmemAllocationProp* properties,
                         CUmemAllocationGranularity_flags option) {
  if (out == nullptr || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
    return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(find_place_for(call, properties).status());
  *out = kMappingGranularity;
  return CUDA_SUCCESS;
}

CUresult get_properties(Call& call, CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
  const PhysicalPtr physical = call.world.memory.physical().find(handle);
  if (out == nullptr || physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = physical->properties();
  return CUDA_SUCCESS;
}

CUresult retain_handle(Call& call, CUmemGenericAllocationHandle* out, void* address) {
  Memory& memory = call.world.memory;
  const Allocation* mapping = memory.find(reinterpret_cast<uint64_t>(address));
  if (out == nullptr || mapping == nullptr || mapping->kind != Allocation::Kind::kMapped)
    return CUDA_ERROR_INVALID_VALUE;
  *out = memory.physical().add_reference(mapping->physical);
  return CUDA_SUCCESS;
}

CUresult export_handle(Call& call, void* out, CUmemGenericAllocationHandle handle,
                       CUmemAllocationHandleType type, unsigned long long flags) {
  const PhysicalPtr physical = call.world.memory.physical().find(handle);
  if (out == nullptr || physical == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      physical->properties().requestedHandleTypes != type)
    return CUDA_ERROR_INVALID_VALUE;
  const int file = fcntl(physical->file(), F_DUPFD_CLOEXEC, 0);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = file;
  return CUDA_SUCCESS;
}

// What another process has exported. Its server has the same GPUs, of which this process may see
// fewer.
PhysicalPtr import_others(const Call& call, int file) {
  const std::optional<int> gpu = PhysicalMemory::gpu_of(file);
  const std::vector<int>& visible = call.world.visible;
  const auto seen = gpu ? std::find(visible.begin(), visible.end(), *gpu) : visible.end();
  if (seen == visible.end()) return nullptr;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(seen - visible.begin())};
  return PhysicalMemory::adopt(properties, Place::gpu(*gpu), file);
}

// The descriptor itself is passed as the pointer, and stays the caller's.
CUresult import_handle(Call& call, CUmemGenericAllocationHandle* out, void* handle,
                       CUmemAllocationHandleType type) {
  if (out == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  PhysicalHandles& handles = call.world.memory.physical();
  const int file = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  PhysicalPtr physical = handles.find_file(file);
  if (physical == nullptr) physical = import_others(call, file);
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = handles.add_reference(physical);
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY(cuMemAddressReserve, 5, reserve)
BRAID_ENTRY(cuMemAddressFree, 2, free_range)
BRAID_ENTRY(cuMemCreate, 4, create)
BRAID_ENTRY(cuMemRelease, 1, release)
BRAID_ENTRY(cuMemMap, 5, map)
BRAID_QUERY(cuMemUnmap, 2, unmap)
BRAID_ENTRY(cuMemSetAccess, 4, set_access)
BRAID_ENTRY(cuMemGetAccess, 3, get_access)
BRAID_ENTRY(cuMemGetAllocationGranularity, 3, get_granularity)
BRAID_ENTRY(cuMemGetAllocationPropertiesFromHandle, 2, get_properties)
BRAID_ENTRY(cuMemRetainAllocationHandle, 2, retain_handle)
BRAID_ENTRY(cuMemExportToShareableHandle, 4, export_handle)
BRAID_ENTRY(cuMemImportFromShareableHandle, 3, import_handle)

}  // namespace braid::emulator
