// Streams: creation, what they are, asking and waiting for them, host functions in them.
#include <algorithm>
#include <functional>

#include "emulator/api/context.h"
#include "emulator/constants.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

CUresult create_with_priority(Call& call, CUstream* out, unsigned flags, int priority) {
  if (out == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(context, current_context(call));
  Scheduler::prune(*context);
  const StreamPtr stream = call.world.make_stream(
      context, flags, std::clamp(priority, kGreatestPriority, kLeastPriority));
  stream->handle = call.world.streams.add(stream);
  *out = stream->handle;
  return CUDA_SUCCESS;
}

CUresult create(Call& call, CUstream* out, unsigned flags) {
  return create_with_priority(call, out, flags, 0);
}

// The handle goes at once; the work in the stream goes on.
CUresult destroy_stream(Call& call, CUstream handle) {
  BRAID_LET(stream, find_object(call.world.streams, handle));
  stream->destroyed = true;
  if (stream->capture != nullptr) stream->capture->valid = false;
  call.world.streams.remove(handle);
  if (const ContextPtr context = stream->context.lock()) Scheduler::prune(*context);
  return CUDA_SUCCESS;
}

// Asking or waiting for a stream that records a graph spoils the recording.
CUresult refuse_captured(const StreamPtr& stream) {
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  stream->capture->valid = false;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

// What an op added now would wait for: for the legacy stream, the blocking streams too.
std::vector<CompletionPtr> ends_before(const StreamPtr& stream) {
  std::vector<CompletionPtr> ends;
  if (stream->tail != nullptr) ends.push_back(stream->tail);
  const ContextPtr context = stream->context.lock();
  if (stream->legacy && context != nullptr)
    for (const StreamPtr& other : context->streams)
      if (other->blocking() && other->tail != nullptr) ends.push_back(other->tail);
  return ends;
}

CUresult query(Call& call, CUstream handle) {
  BRAID_LET(stream, find_stream(call, handle));
  BRAID_TRY(refuse_captured(stream));
  const auto ends = ends_before(stream);
  for (const CompletionPtr& end : ends)
    if (!end->done()) return CUDA_ERROR_NOT_READY;
  for (const CompletionPtr& end : ends) call.world.clock.wait_until(end->when());
  return CUDA_SUCCESS;
}

CUresult synchronize(Call& call, CUstream handle) {
  BRAID_LET(stream, find_stream(call, handle));
  BRAID_TRY(refuse_captured(stream));
  CUresult result = CUDA_SUCCESS;
  for (const CompletionPtr& end : ends_before(stream)) result = wait_for_end(call, stream, end);
  return result;
}

CUcontext context_of(const Stream& stream) { return stream.context.lock()->handle; }
int device_number_of(const Stream& stream) { return stream.context.lock()->device; }

template <typename Value, auto fact>
CUresult get(Call& call, CUstream handle, Value* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(stream, find_stream(call, handle));
  *out = std::invoke(fact, *stream);
  return CUDA_SUCCESS;
}

// Not of a stream that records, however relaxed the thread is.
CUresult get_id(Call& call, CUstream handle, unsigned long long* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(stream, find_stream(call, handle));
  BRAID_TRY(refuse_captured(stream));
  *out = stream->id;
  return CUDA_SUCCESS;
}

CUresult get_contexts(Call& call, CUstream handle, CUcontext* out, CUgreenCtx* green) {
  BRAID_TRY((get<CUcontext, context_of>(call, handle, out)));
  if (green != nullptr) *green = nullptr;
  return CUDA_SUCCESS;
}

CUresult launch_host_function(Call& call, CUstream handle, CUhostFn function, void* data) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(stream, find_stream(call, handle));
  BRAID_TRY(check_capture(stream));
  enqueue_host_call(call.world, stream, [function, data] { function(data); });
  return CUDA_SUCCESS;
}

CUresult add_callback(Call& call, CUstream handle, CUstreamCallback callback, void* data,
                      unsigned flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(stream, find_stream(call, handle));
  if (stream->capture != nullptr) return refuse_captured(stream);
  BRAID_TRY(check_capture(stream));
  enqueue_host_call(call.world, stream,
                    [callback, handle, data] { callback(handle, CUDA_SUCCESS, data); });
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY(cuStreamCreate, 2, create)
BRAID_ENTRY(cuStreamCreateWithPriority, 3, create_with_priority)
BRAID_ENTRY_V2(cuStreamDestroy, 1, destroy_stream)
BRAID_ENTRY_STREAM(cuStreamQuery, _ptsz, Cost::kQuery, 1, query)
BRAID_ENTRY_STREAM(cuStreamSynchronize, _ptsz, Cost::kQuery, 1, synchronize)
BRAID_ENTRY_STREAM(cuStreamGetCtx, _ptsz, Cost::kNothing, 2, get<CUcontext, context_of>)
BRAID_ENTRY_STREAM(cuStreamGetCtx_v2, _ptsz, Cost::kNothing, 3, get_contexts)
BRAID_ENTRY_STREAM(cuStreamGetFlags, _ptsz, Cost::kNothing, 2, get<unsigned, &Stream::flags>)
BRAID_ENTRY_STREAM(cuStreamGetPriority, _ptsz, Cost::kNothing, 2, get<int, &Stream::priority>)
BRAID_ENTRY_STREAM(cuStreamGetId, _ptsz, Cost::kNothing, 2, get_id)
BRAID_ENTRY_STREAM(cuStreamGetDevice, _ptsz, Cost::kNothing, 2, get<CUdevice, device_number_of>)
BRAID_ENTRY_STREAM(cuLaunchHostFunc, _ptsz, Cost::kEnqueue, 3, launch_host_function)
BRAID_ENTRY_STREAM(cuStreamAddCallback, _ptsz, Cost::kEnqueue, 4, add_callback)

}  // namespace braid::emulator
