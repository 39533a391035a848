// Stream memory operations: waiting for and writing values of 4 or 8 bytes, alone or in batches.
#include <vector>

#include "emulator/api/entry.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

CUresult check_word(Call& call, Word word) {
  const bool fits = call.world.memory.find(word.address, word.width_bytes) != nullptr;
  return fits && word.address % word.width_bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// One wait or write, before it is known to be sound.
struct Request {
  bool waits = false;
  Word word;
  uint64_t value = 0;
  unsigned flags = 0;
};

CUresult check_flags(const Request& request) {
  if (!request.waits)
    return (request.flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) != 0
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
  // CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES is 0 here.
  if ((request.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return request.flags > CU_STREAM_WAIT_VALUE_NOR ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// All are checked before any is enqueued.
CUresult issue(Call& call, CUstream handle, const std::vector<Request>& requests) {
  for (const Request& request : requests) BRAID_TRY(check_flags(request));
  BRAID_LET(stream, find_stream(call, handle));
  for (const Request& request : requests) BRAID_TRY(check_word(call, request.word));
  BRAID_TRY(check_capture(stream));
  for (const Request& request : requests)
    if (request.waits)
      enqueue_wait_value(call.world, stream, request.word, request.value, request.flags);
    else
      enqueue_write_value(call.world, stream, request.word, request.value);
  return CUDA_SUCCESS;
}

template <bool waits, typename Value>
CUresult issue_one(Call& call, CUstream stream, CUdeviceptr address, Value value, unsigned flags) {
  return issue(call, stream, {{waits, {address, sizeof(Value)}, value, flags}});
}

CUresult add_request(const CUstreamBatchMemOpParams& op, std::vector<Request>& requests) {
  const auto& wait = op.waitValue;
  const auto& write = op.writeValue;
  switch (static_cast<int>(op.operation)) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      requests.push_back({true, {wait.address, 4}, wait.value, wait.flags});
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      requests.push_back({true, {wait.address, 8}, wait.value64, wait.flags});
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      requests.push_back({false, {write.address, 4}, write.value, write.flags});
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      requests.push_back({false, {write.address, 8}, write.value64, write.flags});
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_BARRIER: return CUDA_SUCCESS;  // ops of a stream are in order anyway
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult batch(Call& call, CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops,
               unsigned flags) {
  constexpr unsigned kMostOps = 256;
  if (ops == nullptr || count == 0 || count > kMostOps || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  std::vector<Request> requests;
  for (unsigned i = 0; i < count; ++i) BRAID_TRY(add_request(ops[i], requests));
  return issue(call, stream, requests);
}

}  // namespace

// The first and second forms differ in what old devices had to be asked for; they do the same.
BRAID_ENTRY_STREAM_V2(cuStreamWaitValue32, _ptsz, Cost::kEnqueue, 4, issue_one<true, cuuint32_t>)
BRAID_ENTRY_STREAM_V2(cuStreamWaitValue64, _ptsz, Cost::kEnqueue, 4, issue_one<true, cuuint64_t>)
BRAID_ENTRY_STREAM_V2(cuStreamWriteValue32, _ptsz, Cost::kEnqueue, 4, issue_one<false, cuuint32_t>)
BRAID_ENTRY_STREAM_V2(cuStreamWriteValue64, _ptsz, Cost::kEnqueue, 4, issue_one<false, cuuint64_t>)
BRAID_ENTRY_STREAM_V2(cuStreamBatchMemOp, _ptsz, Cost::kEnqueue, 4, batch)

}  // namespace braid::emulator
