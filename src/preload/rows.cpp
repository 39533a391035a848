// 2D and 3D copies: accelerated when their rows touch or are long; else the driver's.
#include "preload/entries.h"
#include "preload/intercept.h"
#include "preload/scratch.h"
#include "preload/shapes.h"

namespace braid::preload {
namespace {

// The address that a memory type selects; 0 for arrays.
CUdeviceptr address_of(CUmemorytype type, const void* host, CUdeviceptr device) {
  if (type == CU_MEMORYTYPE_HOST) return reinterpret_cast<CUdeviceptr>(host);
  return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED ? device : 0;
}

// A pitch of 0 is the driver's business unless there is one row.
bool make_box(const CUDA_MEMCPY2D& copy, Box& box) {
  const CUdeviceptr to = address_of(copy.dstMemoryType, copy.dstHost, copy.dstDevice);
  const CUdeviceptr from = address_of(copy.srcMemoryType, copy.srcHost, copy.srcDevice);
  box = {{to + copy.dstY * copy.dstPitch + copy.dstXInBytes, copy.dstPitch, 0},
         {from + copy.srcY * copy.srcPitch + copy.srcXInBytes, copy.srcPitch, 0},
         copy.WidthInBytes,
         copy.Height};
  return to != 0 && from != 0 && copy.dstPitch >= copy.dstXInBytes + copy.WidthInBytes &&
         copy.srcPitch >= copy.srcXInBytes + copy.WidthInBytes;
}

bool make_box(const CUDA_MEMCPY3D& copy, Box& box) {
  const CUdeviceptr to = address_of(copy.dstMemoryType, copy.dstHost, copy.dstDevice);
  const CUdeviceptr from = address_of(copy.srcMemoryType, copy.srcHost, copy.srcDevice);
  const uint64_t to_layer = copy.dstPitch * copy.dstHeight;
  const uint64_t from_layer = copy.srcPitch * copy.srcHeight;
  box = {{to + copy.dstZ * to_layer + copy.dstY * copy.dstPitch + copy.dstXInBytes, copy.dstPitch,
          to_layer},
         {from + copy.srcZ * from_layer + copy.srcY * copy.srcPitch + copy.srcXInBytes,
          copy.srcPitch, from_layer},
         copy.WidthInBytes,
         copy.Height,
         copy.Depth};
  return to != 0 && from != 0 && copy.srcLOD == 0 && copy.dstLOD == 0 &&
         copy.dstPitch >= copy.dstXInBytes + copy.WidthInBytes &&
         copy.srcPitch >= copy.srcXInBytes + copy.WidthInBytes &&
         (copy.Depth == 1 ||
          (copy.dstHeight >= copy.dstY + copy.Height && copy.srcHeight >= copy.srcY + copy.Height));
}

uint64_t size_of_box(const CUDA_MEMCPY2D* copy) {
  return copy != nullptr ? copy->WidthInBytes * copy->Height : 0;
}

uint64_t size_of_box(const CUDA_MEMCPY3D* copy) {
  return copy != nullptr ? copy->WidthInBytes * copy->Height * copy->Depth : 0;
}

template <typename Shape>
void offer(Interception& call, const Shape& copy, CUstream stream) noexcept try {
  Box box;
  if (!make_box(copy, box)) return;
  const auto direction = call.find_direction(box.to.first, box.from.first);
  std::vector<multipath::Segment>* segments = scratch_segments();
  if (segments == nullptr) return call.give_up();
  if (!direction || !append_rows(box, *direction, *segments)) return;
  call.offer(multipath::Batch(*direction, *segments, stream));
} catch (...) {
  call.give_up();
}

template <typename Shape, typename... Arguments>
CUresult copy_rows(HookId hook, Wait wait, CUstream stream, const Shape* copy,
                   Arguments... arguments) {
  Interception call(hook, wait, size_of_box(copy));
  if (call.may_gain(threshold_bytes())) offer(call, *copy, stream);
  return call.finish(copy, arguments...);
}

}  // namespace
}  // namespace braid::preload

using namespace braid::preload;

// Each in the legacy default stream's form, and in the per-thread one's.
#define BRAID_ROWS(symbol, Shape)                                                \
  CUresult symbol(const Shape* copy) {                                           \
    return copy_rows(k_##symbol, Wait::kYes, CU_STREAM_LEGACY, copy);            \
  }                                                                              \
  CUresult symbol##_ptds(const Shape* copy) {                                    \
    return copy_rows(k_##symbol##_ptds, Wait::kYes, CU_STREAM_PER_THREAD, copy); \
  }
#define BRAID_ROWS_ASYNC(symbol, Shape)                                               \
  CUresult symbol(const Shape* copy, CUstream stream) {                               \
    return copy_rows(k_##symbol, Wait::kNo, legacy(stream), copy, stream);            \
  }                                                                                   \
  CUresult symbol##_ptsz(const Shape* copy, CUstream stream) {                        \
    return copy_rows(k_##symbol##_ptsz, Wait::kNo, per_thread(stream), copy, stream); \
  }

BRAID_ROWS(cuMemcpy2D_v2, CUDA_MEMCPY2D)
BRAID_ROWS(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D)
BRAID_ROWS_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D)
BRAID_ROWS(cuMemcpy3D_v2, CUDA_MEMCPY3D)
BRAID_ROWS_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D)
