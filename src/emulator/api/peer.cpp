// Peer access: which GPUs can reach each other, and which contexts have been allowed to.
#include "emulator/api/device.h"

namespace braid::emulator {
namespace {

bool reachable(const Call& call, CUdevice from, CUdevice to) {
  const World& world = call.world;
  return from != to &&
         !topology::peer_route(world.server, world.visible[from], world.visible[to]).empty();
}

CUresult can_access(Call& call, int* possible, CUdevice device, CUdevice peer) {
  if (possible == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, device));
  BRAID_TRY(check_device(call, peer));
  *possible = reachable(call, device, peer) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult get_p2p_attribute(Call& call, int* value, CUdevice_P2PAttribute attribute, CUdevice from,
                           CUdevice to) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, from));
  BRAID_TRY(check_device(call, to));
  if (from == to) return CUDA_ERROR_INVALID_DEVICE;
  const World& world = call.world;
  const bool nvlink = world.server.has_nvlink(world.visible[from], world.visible[to]);
  switch (static_cast<int>(attribute)) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK: *value = 0; return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      *value = reachable(call, from, to) ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = nvlink ? 1 : 0;
      return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

// The current context and the peer, which must be another context on another, reachable GPU.
Found<std::pair<ContextPtr, ContextPtr>> find_pair(Call& call, CUcontext handle) {
  BRAID_LET(context, current_context(call));
  BRAID_LET(peer, find_context(call, handle));
  if (context == peer) return CUDA_ERROR_INVALID_CONTEXT;
  return std::pair{context, peer};
}

CUresult enable(Call& call, CUcontext handle, unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(pair, find_pair(call, handle));
  const auto& [context, peer] = pair;
  if (!reachable(call, context->device, peer->device)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  return context->peers.insert(peer->id).second ? CUDA_SUCCESS
                                                : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult disable(Call& call, CUcontext handle) {
  BRAID_LET(pair, find_pair(call, handle));
  const auto& [context, peer] = pair;
  return context->peers.erase(peer->id) > 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace

BRAID_ENTRY(cuDeviceCanAccessPeer, 3, can_access)
BRAID_ENTRY(cuDeviceGetP2PAttribute, 4, get_p2p_attribute)
BRAID_ENTRY(cuCtxEnablePeerAccess, 2, enable)
BRAID_ENTRY(cuCtxDisablePeerAccess, 1, disable)

}  // namespace braid::emulator
