// 2D and 3D copies: accelerated when their rows touch or are long; else the driver's.
#include <cstdint>

#include "preload/checked.h"
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

// One end of a copy, as both structs name it; of a 2D one, z and layer_rows are 0.
struct GivenEnd {
  CUdeviceptr base = 0;
  uint64_t x_bytes = 0;
  uint64_t y = 0;
  uint64_t z = 0;
  uint64_t pitch_bytes = 0;
  uint64_t layer_rows = 0;
};

// CU_DEVICE_ATTRIBUTE_MAX_PITCH of all GPUs; the driver refuses more, also for one row.
constexpr uint64_t kMaxPitchBytes = INT32_MAX;

// False where the driver refuses, or knows better (a pitch of 0): the copy is native.
bool find_end(const GivenEnd& given, const Box& box, BoxEnd& end) {
  const Checked layer = Checked(given.pitch_bytes) * given.layer_rows;
  const Checked first =
      layer * given.z + Checked(given.pitch_bytes) * given.y + given.x_bytes + given.base;
  end = {first.value(), given.pitch_bytes, layer.value()};
  // Without the height of a layer, only the first can be found.
  const bool is_flat = given.layer_rows == 0 && given.z == 0 && box.depth == 1;
  return given.base != 0 && given.pitch_bytes <= kMaxPitchBytes && first.is_exact() &&
         (Checked(given.x_bytes) + box.width_bytes).is_at_most(given.pitch_bytes) &&
         (is_flat || (Checked(given.y) + box.height).is_at_most(given.layer_rows));
}

bool make_box(const CUDA_MEMCPY2D& copy, Box& box) {
  box.width_bytes = copy.WidthInBytes;
  box.height = copy.Height;
  const GivenEnd to{address_of(copy.dstMemoryType, copy.dstHost, copy.dstDevice),
                    copy.dstXInBytes,
                    copy.dstY,
                    0,
                    copy.dstPitch,
                    0};
  const GivenEnd from{address_of(copy.srcMemoryType, copy.srcHost, copy.srcDevice),
                      copy.srcXInBytes,
                      copy.srcY,
                      0,
                      copy.srcPitch,
                      0};
  return find_end(to, box, box.to) && find_end(from, box, box.from);
}

bool make_box(const CUDA_MEMCPY3D& copy, Box& box) {
  box.width_bytes = copy.WidthInBytes;
  box.height = copy.Height;
  box.depth = copy.Depth;
  const GivenEnd to{address_of(copy.dstMemoryType, copy.dstHost, copy.dstDevice),
                    copy.dstXInBytes,
                    copy.dstY,
                    copy.dstZ,
                    copy.dstPitch,
                    copy.dstHeight};
  const GivenEnd from{address_of(copy.srcMemoryType, copy.srcHost, copy.srcDevice),
                      copy.srcXInBytes,
                      copy.srcY,
                      copy.srcZ,
                      copy.srcPitch,
                      copy.srcHeight};
  return copy.srcLOD == 0 && copy.dstLOD == 0 && copy.reserved0 == nullptr &&
         copy.reserved1 == nullptr && find_end(to, box, box.to) && find_end(from, box, box.from);
}

uint64_t size_of_box(const CUDA_MEMCPY2D* copy) {
  return copy != nullptr ? Box{{}, {}, copy->WidthInBytes, copy->Height}.size_bytes() : 0;
}

uint64_t size_of_box(const CUDA_MEMCPY3D* copy) {
  return copy != nullptr ? Box{{}, {}, copy->WidthInBytes, copy->Height, copy->Depth}.size_bytes()
                         : 0;
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
