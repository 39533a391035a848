// Memsets. Asynchronous for the host even without "Async", unless they fill pinned host memory.
#include <limits>

#include "emulator/api/copy_end.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

CUresult fill(Call& call, CUdeviceptr address, uint32_t value, unsigned width_bytes, size_t count,
              CUstream handle, bool synchronous) {
  StreamPtr stream;
  CopyEnd end;
  BRAID_TRY(find_stream(call, handle, stream));
  if (address % width_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  if (count > std::numeric_limits<size_t>::max() / width_bytes) return CUDA_ERROR_INVALID_VALUE;
  if (count > 0) BRAID_TRY(find_end(call, address, count * width_bytes, EndKind::kKnown, end));
  if (synchronous) BRAID_TRY(refuse_during_capture(call));
  BRAID_CAPTURE(stream);
  if (count == 0) return CUDA_SUCCESS;
  const CompletionPtr done = enqueue_fill(call.world, stream, end, value, width_bytes, count);
  const bool waits = (synchronous && !end.place.is_gpu()) || end.sync_memops;
  return waits ? wait_for_end(call, stream, done) : CUDA_SUCCESS;
}

CUresult fill8(Call& call, CUdeviceptr address, unsigned char value, size_t count) {
  return fill(call, address, value, 1, count, nullptr, true);
}
CUresult fill16(Call& call, CUdeviceptr address, unsigned short value, size_t count) {
  return fill(call, address, value, 2, count, nullptr, true);
}
CUresult fill32(Call& call, CUdeviceptr address, unsigned value, size_t count) {
  return fill(call, address, value, 4, count, nullptr, true);
}
CUresult fill8_async(Call& call, CUdeviceptr address, unsigned char value, size_t count,
                     CUstream stream) {
  return fill(call, address, value, 1, count, stream, false);
}
CUresult fill16_async(Call& call, CUdeviceptr address, unsigned short value, size_t count,
                      CUstream stream) {
  return fill(call, address, value, 2, count, stream, false);
}
CUresult fill32_async(Call& call, CUdeviceptr address, unsigned value, size_t count,
                      CUstream stream) {
  return fill(call, address, value, 4, count, stream, false);
}

}  // namespace
}  // namespace braid::emulator

using namespace braid::emulator;

BRAID_ENTRY_STREAM(cuMemsetD8_v2, _ptds, Cost::kEnqueue, fill8,
                   (CUdeviceptr address, unsigned char value, size_t count),
                   (address, value, count))
BRAID_ENTRY_STREAM(cuMemsetD16_v2, _ptds, Cost::kEnqueue, fill16,
                   (CUdeviceptr address, unsigned short value, size_t count),
                   (address, value, count))
BRAID_ENTRY_STREAM(cuMemsetD32_v2, _ptds, Cost::kEnqueue, fill32,
                   (CUdeviceptr address, unsigned value, size_t count), (address, value, count))
BRAID_ENTRY_STREAM(cuMemsetD8Async, _ptsz, Cost::kEnqueue, fill8_async,
                   (CUdeviceptr address, unsigned char value, size_t count, CUstream stream),
                   (address, value, count, stream))
BRAID_ENTRY_STREAM(cuMemsetD16Async, _ptsz, Cost::kEnqueue, fill16_async,
                   (CUdeviceptr address, unsigned short value, size_t count, CUstream stream),
                   (address, value, count, stream))
BRAID_ENTRY_STREAM(cuMemsetD32Async, _ptsz, Cost::kEnqueue, fill32_async,
                   (CUdeviceptr address, unsigned value, size_t count, CUstream stream),
                   (address, value, count, stream))
