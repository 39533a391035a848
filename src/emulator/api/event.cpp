// Events: a record is the end of what was in the stream at the call; waiting takes the record that
// is current at the call, so recording again does not disturb those who wait.
#include <algorithm>

#include "emulator/api/entry.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {
namespace {

constexpr unsigned kCreateFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

CUresult create(Call& call, CUevent* out, unsigned flags) {
  if (out == nullptr || (flags & ~kCreateFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(context, current_context(call));
  auto event = std::make_shared<Event>();
  event->context = context;
  event->device = context->device;
  event->flags = flags;
  *out = call.world.events.add(event);
  return CUDA_SUCCESS;
}

CUresult destroy_event(Call& call, CUevent handle) {
  if (call.world.events.find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  call.world.events.remove(handle);
  return CUDA_SUCCESS;
}

// Marks a point of the recording. A record for outside of the graph would be a node.
CUresult record_in_capture(const Stream& stream, Event& event, unsigned flags) {
  if (flags != 0) return CUDA_ERROR_NOT_SUPPORTED;
  event.captured = stream.capture;
  event.recorded = stream.recorded;
  return CUDA_SUCCESS;
}

CUresult record_with_flags(Call& call, CUevent handle, CUstream stream_handle, unsigned flags) {
  if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(event, find_event(call, handle));
  BRAID_LET(stream, find_stream(call, stream_handle));
  if (event->context.lock() != stream->context.lock()) return CUDA_ERROR_INVALID_HANDLE;
  BRAID_TRY(check_capture(stream));
  if (stream->capture != nullptr) return record_in_capture(*stream, *event, flags);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;  // external records are for captures only
  event->captured = nullptr;
  event->record = enqueue_marker(call.world, stream);
  return CUDA_SUCCESS;
}

CUresult record(Call& call, CUevent handle, CUstream stream) {
  return record_with_flags(call, handle, stream, 0);
}

CUresult query(Call& call, CUevent handle) {
  BRAID_LET(event, find_event(call, handle));
  if (event->captured != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  if (event->record == nullptr) return CUDA_SUCCESS;
  if (!event->record->done()) return CUDA_ERROR_NOT_READY;
  call.world.clock.wait_until(event->record->when());
  return CUDA_SUCCESS;
}

CUresult synchronize(Call& call, CUevent handle) {
  BRAID_LET(event, find_event(call, handle));
  if (event->captured != nullptr) return CUDA_ERROR_CAPTURED_EVENT;
  call.world.wait_for(call.lock, event->record);
  const ContextPtr context = event->context.lock();
  return context != nullptr ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult elapsed(Call& call, float* milliseconds, CUevent start_handle, CUevent end_handle) {
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(start, find_event(call, start_handle));
  BRAID_LET(end, find_event(call, end_handle));
  for (const EventPtr& event : {start, end}) {
    if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0 || event->record == nullptr)
      return CUDA_ERROR_INVALID_HANDLE;
    if (!event->record->done()) return CUDA_ERROR_NOT_READY;
  }
  *milliseconds = static_cast<float>(to_us(end->record->when() - start->record->when()) * 1e-3);
  return CUDA_SUCCESS;
}

// A stream that waits for a captured event joins the capture.
CUresult join(const StreamPtr& stream, const Event& event) {
  const CapturePtr& capture = event.captured;
  if (capture->ended) return CUDA_ERROR_CAPTURED_EVENT;
  if (stream->capture == nullptr && stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (stream->capture != nullptr && stream->capture != capture) {
    stream->capture->valid = capture->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  stream->capture = capture;
  for (const size_t node : event.recorded)
    if (std::find(stream->recorded.begin(), stream->recorded.end(), node) == stream->recorded.end())
      stream->recorded.push_back(node);
  return capture->valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult wait_event(Call& call, CUstream stream_handle, CUevent handle, unsigned flags) {
  if ((flags & ~unsigned{CU_EVENT_WAIT_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(event, find_event(call, handle));
  BRAID_LET(stream, find_stream(call, stream_handle));
  const ContextPtr other = event->context.lock();
  if (other != stream->context.lock() && call.world.wait_for_lock(call.lock, *other))
    return wait_event(call, stream_handle, handle, flags);
  if (event->captured != nullptr) return join(stream, *event);
  if (stream->capture != nullptr && flags == 0) {  // work outside the capture cannot be part of it
    stream->capture->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  BRAID_TRY(check_capture(stream));
  if (stream->capture != nullptr) return CUDA_ERROR_NOT_SUPPORTED;  // an external wait
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (event->record != nullptr) enqueue_wait(call.world, stream, event->record, event->device);
  return CUDA_SUCCESS;
}

}  // namespace

BRAID_ENTRY(cuEventCreate, 2, create)
BRAID_ENTRY_V2(cuEventDestroy, 1, destroy_event)
BRAID_ENTRY_STREAM(cuEventRecord, _ptsz, Cost::kEvent, 2, record)
BRAID_ENTRY_STREAM(cuEventRecordWithFlags, _ptsz, Cost::kEvent, 3, record_with_flags)
BRAID_QUERY(cuEventQuery, 1, query)
BRAID_QUERY(cuEventSynchronize, 1, synchronize)
BRAID_QUERY(cuEventElapsedTime, 3, elapsed)
BRAID_QUERY(cuEventElapsedTime_v2, 3, elapsed)
BRAID_ENTRY_STREAM(cuStreamWaitEvent, _ptsz, Cost::kEvent, 3, wait_event)

}  // namespace braid::emulator
