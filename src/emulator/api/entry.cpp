#include "emulator/api/entry.h"

#include <algorithm>

#include "emulator/constants.h"

namespace braid::emulator {

namespace {

double call_us(const topology::Costs& costs, Cost cost) {
  if (cost == Cost::kQuery) return kQueryUs;
  return (cost == Cost::kEvent ? costs.event_call_us : costs.api_call_us).value;
}

}  // namespace

void begin_call(Call& call, Cost cost) {
  World& world = call.world;
  if (cost == Cost::kNothing) return;
  world.clock.spend_us(call_us(world.server.costs, cost));
  if (cost != Cost::kQuery) start_helper(world);
  world.catch_up(call.lock);
}

Found<ContextPtr> find_context(Call& call, CUcontext handle) {
  const ContextPtr context = call.world.contexts.find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return context;
}

namespace {

// True: it has waited.
bool wait_for_needed_lock(Call& call, const Context& context) {
  return call.lock_use == LockUse::kNeeds && call.world.wait_for_lock(call.lock, context);
}

// Alive and without a sticky error.
CUresult check_context(const ContextPtr& context) {
  return context != nullptr && context->alive ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

Found<ContextPtr> look_up_current(Call& call) {
  if (call.thread.contexts.empty() || call.thread.contexts.back() == nullptr)
    return CUDA_ERROR_INVALID_CONTEXT;
  const ContextPtr context = call.world.contexts.find(call.thread.contexts.back());
  BRAID_TRY(check_context(context));
  return context;
}

StreamPtr per_thread_stream(Call& call, const ContextPtr& context) {
  StreamPtr& stream = context->threads[call.thread.number];
  if (stream == nullptr) stream = call.world.make_stream(context);
  return stream;
}

Found<StreamPtr> look_up_stream(Call& call, CUstream handle) {
  const bool null = handle == nullptr;
  if (null || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    BRAID_LET(context, look_up_current(call));
    const bool per_thread = null ? call.per_thread : handle == CU_STREAM_PER_THREAD;
    return per_thread ? per_thread_stream(call, context) : context->legacy;
  }
  BRAID_LET(stream, find_object(call.world.streams, handle));
  BRAID_TRY(check_context(stream->context.lock()));
  return stream;
}

}  // namespace

Found<ContextPtr> current_context(Call& call) {
  while (true) {
    BRAID_LET(context, look_up_current(call));
    if (!wait_for_needed_lock(call, *context)) return context;
  }
}

Found<StreamPtr> find_stream(Call& call, CUstream handle) {
  while (true) {
    BRAID_LET(stream, look_up_stream(call, handle));
    if (!wait_for_needed_lock(call, *stream->context.lock())) return stream;
  }
}

ContextPtr owner_of(const Call& call, const Allocation& allocation) {
  for (const auto& [handle, context] : call.world.contexts.all())
    if (context->alive && context->id == allocation.context) return context;
  return nullptr;
}

CUresult wait_for_end(Call& call, const StreamPtr& stream, const CompletionPtr& end) {
  call.world.wait_for(call.lock, end);
  const ContextPtr context = stream->context.lock();
  return context != nullptr ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

Found<EventPtr> find_event(Call& call, CUevent handle) {
  BRAID_LET(event, find_object(call.world.events, handle));
  BRAID_TRY(check_context(event->context.lock()));
  return event;
}

namespace {

// Some blocking stream of the context is being captured, so the legacy stream would depend on it.
CapturePtr blocking_capture(const Context& context) {
  for (const StreamPtr& stream : context.streams)
    if (stream->blocking() && stream->capture != nullptr) return stream->capture;
  return nullptr;
}

}  // namespace

CUresult check_capture(const StreamPtr& stream) {
  if (stream->capture != nullptr)
    return stream->capture->valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const ContextPtr context = stream->context.lock();
  if (!stream->legacy || context == nullptr) return CUDA_SUCCESS;
  const CapturePtr capture = blocking_capture(*context);
  if (capture == nullptr) return CUDA_SUCCESS;
  capture->valid = false;
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult check_capture(const StreamPtr& stream, bool is_synchronous) {
  BRAID_TRY(check_capture(stream));
  if (stream->capture == nullptr || !is_synchronous) return CUDA_SUCCESS;
  stream->capture->valid = false;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

// cuThreadExchangeStreamCaptureMode: a thread in relaxed mode may do as it likes; one in
// thread-local mode answers for its own captures only; else every global capture counts.
CUresult refuse_during_capture(Call& call) {
  if (call.thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  for (const CapturePtr& capture : call.world.captures) {
    const bool own = capture->thread == call.thread.number;
    const bool counts = own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                            : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                  call.thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!counts) continue;
    capture->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace braid::emulator
