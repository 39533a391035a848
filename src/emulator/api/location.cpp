#include "emulator/api/location.h"

#include <utility>

#include "emulator/api/device.h"

namespace braid::emulator {
namespace {

bool is_access(CUmemAccess_flags flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

bool can_reach(const Call& call, int accessor, Place place) {
  if (accessor == CU_DEVICE_CPU) return !place.is_gpu();
  const int gpu = call.world.visible[accessor];
  return !place.is_gpu() || place.number() == gpu ||
         !topology::peer_route(call.world.server, gpu, place.number()).empty();
}

}  // namespace

CUresult find_place(const Call& call, const CUmemLocation& location, Place& place) {
  const int nodes = call.world.server.numa_node_count();
  switch (static_cast<int>(location.type)) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      BRAID_TRY(check_device(call, location.id));
      place = Place::gpu(call.world.visible[location.id]);
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST: place = Place::host(0); return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      if (location.id < 0 || location.id >= nodes) return CUDA_ERROR_INVALID_DEVICE;
      place = Place::host(location.id);
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult find_accessor(const Call& call, const CUmemLocation& location, int& accessor) {
  const bool is_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const bool is_host =
      location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (!is_device && !is_host) return CUDA_ERROR_INVALID_VALUE;
  accessor = is_device ? location.id : CU_DEVICE_CPU;
  return is_device ? check_device(call, location.id) : CUDA_SUCCESS;
}

CUresult grant(const Call& call, Place place, const CUmemAccessDesc* wanted, size_t count,
               Grants& grants) {
  Grants changed = grants;
  for (size_t i = 0; i < count; ++i) {
    int accessor = 0;
    if (!is_access(wanted[i].flags)) return CUDA_ERROR_INVALID_VALUE;
    BRAID_TRY(find_accessor(call, wanted[i].location, accessor));
    if (!can_reach(call, accessor, place))
      return accessor == CU_DEVICE_CPU ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
    changed[accessor] = wanted[i].flags;
  }
  grants = std::move(changed);
  return CUDA_SUCCESS;
}

}  // namespace braid::emulator
