// Stream memory operations: waiting for and writing values of 4 or 8 bytes.
#include "emulator/api/entry.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

CUresult check_word(Call& call, Word word) {
  const bool fits = call.world.memory.find(word.address, word.width_bytes) != nullptr;
  return fits && word.address % word.width_bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult wait_value(Call& call, CUstream handle, Word word, uint64_t value, unsigned flags) {
  StreamPtr stream;
  // CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES is 0 here.
  if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (flags > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(find_stream(call, handle, stream));
  BRAID_TRY(check_word(call, word));
  BRAID_CAPTURE(stream);
  enqueue_wait_value(call.world, stream, word, value, flags);
  return CUDA_SUCCESS;
}

CUresult write_value(Call& call, CUstream handle, Word word, uint64_t value, unsigned flags) {
  StreamPtr stream;
  if ((flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(find_stream(call, handle, stream));
  BRAID_TRY(check_word(call, word));
  BRAID_CAPTURE(stream);
  enqueue_write_value(call.world, stream, word, value);
  return CUDA_SUCCESS;
}

CUresult wait32(Call& call, CUstream stream, CUdeviceptr address, cuuint32_t value,
                unsigned flags) {
  return wait_value(call, stream, {address, 4}, value, flags);
}
CUresult wait64(Call& call, CUstream stream, CUdeviceptr address, cuuint64_t value,
                unsigned flags) {
  return wait_value(call, stream, {address, 8}, value, flags);
}
CUresult write32(Call& call, CUstream stream, CUdeviceptr address, cuuint32_t value,
                 unsigned flags) {
  return write_value(call, stream, {address, 4}, value, flags);
}
CUresult write64(Call& call, CUstream stream, CUdeviceptr address, cuuint64_t value,
                 unsigned flags) {
  return write_value(call, stream, {address, 8}, value, flags);
}

CUresult one_of_batch(Call& call, CUstream stream, const CUstreamBatchMemOpParams& op) {
  switch (static_cast<int>(op.operation)) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return wait32(call, stream, op.waitValue.address, op.waitValue.value, op.waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return wait64(call, stream, op.waitValue.address, op.waitValue.value64, op.waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return write32(call, stream, op.writeValue.address, op.writeValue.value, op.writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return write64(call, stream, op.writeValue.address, op.writeValue.value64,
                     op.writeValue.flags);
    case CU_STREAM_MEM_OP_BARRIER: return CUDA_SUCCESS;  // ops of a stream are in order anyway
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult batch(Call& call, CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops,
               unsigned flags) {
  constexpr unsigned kMostOps = 256;
  if (ops == nullptr || count == 0 || count > kMostOps || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) BRAID_TRY(one_of_batch(call, stream, ops[i]));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace braid::emulator

using namespace braid::emulator;

// The first and second forms differ in what old devices had to be asked for; they do the same.
#define BRAID_VALUE_ENTRY(symbol, work, type)                                            \
  BRAID_ENTRY_STREAM(symbol, _ptsz, Cost::kEnqueue, work,                                \
                     (CUstream stream, CUdeviceptr address, type value, unsigned flags), \
                     (stream, address, value, flags))

BRAID_VALUE_ENTRY(cuStreamWaitValue32, wait32, cuuint32_t)
BRAID_VALUE_ENTRY(cuStreamWaitValue32_v2, wait32, cuuint32_t)
BRAID_VALUE_ENTRY(cuStreamWaitValue64, wait64, cuuint64_t)
BRAID_VALUE_ENTRY(cuStreamWaitValue64_v2, wait64, cuuint64_t)
BRAID_VALUE_ENTRY(cuStreamWriteValue32, write32, cuuint32_t)
BRAID_VALUE_ENTRY(cuStreamWriteValue32_v2, write32, cuuint32_t)
BRAID_VALUE_ENTRY(cuStreamWriteValue64, write64, cuuint64_t)
BRAID_VALUE_ENTRY(cuStreamWriteValue64_v2, write64, cuuint64_t)

#define BRAID_BATCH_ENTRY(symbol)                                                       \
  BRAID_ENTRY_STREAM(                                                                   \
      symbol, _ptsz, Cost::kEnqueue, batch,                                             \
      (CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags), \
      (stream, count, ops, flags))

BRAID_BATCH_ENTRY(cuStreamBatchMemOp)
BRAID_BATCH_ENTRY(cuStreamBatchMemOp_v2)
