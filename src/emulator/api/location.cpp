#include "emulator/api/location.h"

#include <utility>

#include "emulator/api/context.h"
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

Found<Place> find_place(const Call& call, const CUmemLocation& location) {
  const int nodes = call.world.server.numa_node_count();
  switch (static_cast<int>(location.type)) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      BRAID_TRY(check_device(call, location.id));
      return Place::gpu(call.world.visible[location.id]);
    case CU_MEM_LOCATION_TYPE_HOST: return Place::host(0);
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      if (location.id < 0 || location.id >= nodes) return CUDA_ERROR_INVALID_DEVICE;
      return Place::host(location.id);
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

Found<int> find_accessor(const Call& call, const CUmemLocation& location) {
  const bool is_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const bool is_host =
      location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (!is_device && !is_host) return CUDA_ERROR_INVALID_VALUE;
  if (is_device) BRAID_TRY(check_device(call, location.id));
  return is_device ? int{location.id} : CU_DEVICE_CPU;
}

CUresult grant(const Call& call, Place place, const CUmemAccessDesc* wanted, size_t count,
               Grants& grants) {
  Grants changed = grants;
  for (size_t i = 0; i < count; ++i) {
    if (!is_access(wanted[i].flags)) return CUDA_ERROR_INVALID_VALUE;
    BRAID_LET(accessor, find_accessor(call, wanted[i].location));
    if (!can_reach(call, accessor, place))
      return accessor == CU_DEVICE_CPU ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
    changed[accessor] = wanted[i].flags;
  }
  grants = std::move(changed);
  return CUDA_SUCCESS;
}

void wait_to_set_access(Call& call) {
  if (!call.world.variant.setting_access_waits) return;
  if (auto current = current_context(call); current.ok()) wait_for_context(call, current.value());
}

}  // namespace braid::emulator
