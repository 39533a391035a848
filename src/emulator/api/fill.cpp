// Memsets. Asynchronous for the host even without "Async", unless they fill pinned host memory.
#include <limits>

#include "emulator/api/copy_end.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

// `count` elements in each of `rows` rows that begin `pitch_bytes` apart; the pitch of one row
// means nothing.
struct Area {
  size_t pitch_bytes = 0;
  size_t count = 0;
  size_t rows = 1;
};

template <typename Element>
CUresult fill(Call& call, CUdeviceptr address, Element value, const Area& area, CUstream handle,
              bool synchronous) {
  constexpr unsigned kElementBytes = sizeof(Element);
  CopyEnd end;
  BRAID_LET(stream, find_stream(call, handle));
  if (area.count > std::numeric_limits<size_t>::max() / kElementBytes)
    return CUDA_ERROR_INVALID_VALUE;
  const Extent extent{area.count * kElementBytes, area.rows, 1};
  const size_t pitch_bytes = area.rows > 1 ? area.pitch_bytes : extent.width_bytes;
  if (address % kElementBytes != 0 || pitch_bytes % kElementBytes != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (pitch_bytes < extent.width_bytes) return CUDA_ERROR_INVALID_VALUE;
  Layout layout;
  layout.row_bytes = pitch_bytes;
  if (!extent.empty()) BRAID_TRY(find_rows(call, address, layout, extent, EndKind::kKnown, end));
  BRAID_TRY(check_capture(stream, synchronous));
  if (extent.empty()) return CUDA_SUCCESS;
  const CompletionPtr done = enqueue_fill(call.world, stream, end, extent, value, kElementBytes);
  const bool waits = (synchronous && !end.place.is_gpu()) || end.sync_memops;
  return waits ? wait_for_end(call, stream, done) : CUDA_SUCCESS;
}

template <typename Element>
CUresult row(Call& call, CUdeviceptr address, Element value, size_t count) {
  return fill(call, address, value, {0, count, 1}, nullptr, true);
}
template <typename Element>
CUresult row_async(Call& call, CUdeviceptr address, Element value, size_t count, CUstream stream) {
  return fill(call, address, value, {0, count, 1}, stream, false);
}
template <typename Element>
CUresult rows(Call& call, CUdeviceptr address, size_t pitch, Element value, size_t count,
              size_t rows) {
  return fill(call, address, value, {pitch, count, rows}, nullptr, true);
}
template <typename Element>
CUresult rows_async(Call& call, CUdeviceptr address, size_t pitch, Element value, size_t count,
                    size_t rows, CUstream stream) {
  return fill(call, address, value, {pitch, count, rows}, stream, false);
}

}  // namespace

#define BRAID_FILLS(bits, Element)                                                         \
  BRAID_ENTRY_STREAM(cuMemsetD##bits##_v2, _ptds, Cost::kEnqueue, 3, row<Element>)         \
  BRAID_ENTRY_STREAM(cuMemsetD##bits##Async, _ptsz, Cost::kEnqueue, 4, row_async<Element>) \
  BRAID_ENTRY_STREAM(cuMemsetD2D##bits##_v2, _ptds, Cost::kEnqueue, 5, rows<Element>)      \
  BRAID_ENTRY_STREAM(cuMemsetD2D##bits##Async, _ptsz, Cost::kEnqueue, 6, rows_async<Element>)

BRAID_FILLS(8, unsigned char)
BRAID_FILLS(16, unsigned short)
BRAID_FILLS(32, unsigned)

}  // namespace braid::emulator
