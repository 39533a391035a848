// Copies of rows and layers: cuMemcpy2D, cuMemcpy3D, cuMemcpy3DPeer and their asynchronous forms.
// No entry point makes CUDA arrays, so an end that is one is not supported.
#include <utility>

#include "emulator/api/copy_end.h"
#include "emulator/api/copy_issue.h"
#include "emulator/constants.h"

namespace braid::emulator {
namespace {

struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  Layout layout;
};

struct Sides {
  Side source;
  Side destination;
};

// The three parameter structs name their members alike; the 2D one lacks some.
template <typename Params>
Sides sides_of(const Params& given) {
  Sides sides{{given.srcMemoryType, given.srcHost, given.srcDevice, {}},
              {given.dstMemoryType, given.dstHost, given.dstDevice, {}}};
  sides.source.layout = {given.srcPitch, 0, given.srcXInBytes, given.srcY, 0};
  sides.destination.layout = {given.dstPitch, 0, given.dstXInBytes, given.dstY, 0};
  if constexpr (requires { given.srcZ; }) {
    sides.source.layout.layer_rows = given.srcHeight;
    sides.source.layout.z = given.srcZ;
    sides.destination.layout.layer_rows = given.dstHeight;
    sides.destination.layout.z = given.dstZ;
  }
  return sides;
}

template <typename Params>
Extent extent_of(const Params& params) {
  Extent extent{params.WidthInBytes, params.Height, 1};
  if constexpr (requires { params.Depth; }) extent.depth = params.Depth;
  return extent;
}

// What can be said of a side without looking at memory.
CUresult check_side(const Side& side, const Extent& extent) {
  if (side.type == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  if (side.type != CU_MEMORYTYPE_HOST && side.type != CU_MEMORYTYPE_DEVICE &&
      side.type != CU_MEMORYTYPE_UNIFIED)
    return CUDA_ERROR_INVALID_VALUE;
  if (side.layout.row_bytes > kMaxPitchBytes) return CUDA_ERROR_INVALID_VALUE;
  // Without the height of a layer, only the first can be found.
  const bool one_layer = extent.depth <= 1 && side.layout.z == 0;
  return side.layout.layer_rows == 0 && !one_layer ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult find_side(Call& call, const Side& side, const Extent& extent, CopyEnd& end) {
  const bool host = side.type == CU_MEMORYTYPE_HOST;
  const EndKind kind = host                                 ? EndKind::kHost
                       : side.type == CU_MEMORYTYPE_UNIFIED ? EndKind::kAny
                                                            : EndKind::kKnown;
  const uint64_t base = host ? reinterpret_cast<uint64_t>(side.host) : side.device;
  return find_rows(call, base, side.layout, extent, kind, end);
}

template <typename Params>
CUresult check_members(Call& call, const Params& params, Copy& copy) {
  if constexpr (requires { params.srcLOD; })
    if (params.srcLOD != 0 || params.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  if constexpr (requires { params.reserved0; })
    if (params.reserved0 != nullptr || params.reserved1 != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if constexpr (requires { params.srcContext; })
    BRAID_TRY(find_peers(call, params.dstContext, params.srcContext, copy));
  return CUDA_SUCCESS;
}

// As with linear copies, nothing is looked up for a copy of no bytes.
template <typename Params>
CUresult copy_shape(Call& call, const Params* params, CUstream handle, Waiting waiting) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(stream, find_stream(call, handle));
  Copy copy;
  BRAID_TRY(check_members(call, *params, copy));
  const auto [source, destination] = sides_of(*params);
  copy.extent = extent_of(*params);
  BRAID_TRY(check_side(source, copy.extent));
  BRAID_TRY(check_side(destination, copy.extent));
  if (!copy.extent.empty()) {
    BRAID_TRY(find_side(call, destination, copy.extent, copy.destination));
    BRAID_TRY(find_side(call, source, copy.extent, copy.source));
  }
  return issue_copy(call, stream, std::move(copy), waiting);
}

template <typename Params>
CUresult shape(Call& call, const Params* params) {
  return copy_shape(call, params, nullptr, Waiting::kSynchronous);
}
template <typename Params>
CUresult shape_async(Call& call, const Params* params, CUstream stream) {
  return copy_shape(call, params, stream, Waiting::kAsynchronous);
}

}  // namespace

BRAID_ENTRY_STREAM(cuMemcpy2D_v2, _ptds, Cost::kEnqueue, 1, shape<CUDA_MEMCPY2D>)
// Asks less of pitches than cuMemcpy2D, which here takes all of them too.
BRAID_ENTRY_STREAM(cuMemcpy2DUnaligned_v2, _ptds, Cost::kEnqueue, 1, shape<CUDA_MEMCPY2D>)
BRAID_ENTRY_STREAM(cuMemcpy2DAsync_v2, _ptsz, Cost::kEnqueue, 2, shape_async<CUDA_MEMCPY2D>)
BRAID_ENTRY_STREAM(cuMemcpy3D_v2, _ptds, Cost::kEnqueue, 1, shape<CUDA_MEMCPY3D>)
BRAID_ENTRY_STREAM(cuMemcpy3DAsync_v2, _ptsz, Cost::kEnqueue, 2, shape_async<CUDA_MEMCPY3D>)
BRAID_ENTRY_STREAM(cuMemcpy3DPeer, _ptds, Cost::kEnqueue, 1, shape<CUDA_MEMCPY3D_PEER>)
BRAID_ENTRY_STREAM(cuMemcpy3DPeerAsync, _ptsz, Cost::kEnqueue, 2, shape_async<CUDA_MEMCPY3D_PEER>)

}  // namespace braid::emulator
