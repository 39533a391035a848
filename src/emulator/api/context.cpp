// Contexts: creation, the thread's stack of current ones, synchronising, limits.
#include "emulator/api/context.h"

#include <algorithm>
#include <utility>

#include "emulator/api/device.h"
#include "emulator/constants.h"

namespace braid::emulator {

bool known_context_flags(unsigned flags) {
  const unsigned scheduling = flags & CU_CTX_SCHED_MASK;
  return (flags & ~unsigned{CU_CTX_FLAGS_MASK}) == 0 &&
         (scheduling & (scheduling - 1)) == 0;  // at most one way of waiting
}

namespace {

// Takes what the context needs with stacks of this size, or gives back what it no longer needs.
CUresult take_memory(World& world, Context& context, uint64_t stack_bytes) {
  const auto sms = static_cast<uint64_t>(world.server.gpus[context.gpu].sm_count.value);
  const uint64_t needed_bytes = kContextBytes + sms * kThreadsPerMultiprocessor * stack_bytes;
  Arena& arena = world.memory.arena(context.gpu);
  const uint64_t taken_bytes = context.taken_bytes;
  if (needed_bytes > taken_bytes && !arena.charge(needed_bytes - taken_bytes))
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (needed_bytes < taken_bytes) arena.refund(taken_bytes - needed_bytes);
  context.taken_bytes = needed_bytes;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult revive(Call& call, Context& context, unsigned flags) {
  World& world = call.world;
  if (world.error != CUDA_SUCCESS) return world.error;
  if (world.variant.compute_mode_of(context.gpu) == CU_COMPUTEMODE_PROHIBITED)
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  BRAID_TRY(take_memory(world, context, kStackBytes));
  context.id = world.next_id++;
  context.flags = flags;
  context.alive = true;
  context.error = CUDA_SUCCESS;
  context.legacy = world.make_stream(world.contexts.find(context.handle));
  context.legacy->legacy = true;
  return CUDA_SUCCESS;
}

namespace {

bool is_idle(const Context& context) {
  return std::all_of(context.streams.begin(), context.streams.end(),
                     [](const StreamPtr& stream) { return stream->idle(); });
}

void wait_for_streams(Call& call, const Context& context) {
  std::vector<CompletionPtr> ends;
  for (const StreamPtr& stream : context.streams)
    if (stream->tail != nullptr) ends.push_back(stream->tail);
  call.world.wait(call.lock, [&] {
    return std::all_of(ends.begin(), ends.end(), [](const auto& end) { return end->done(); });
  });
  for (const CompletionPtr& end : ends) call.world.clock.wait_until(end->when());
}

void wait_with_lock(Call& call, const ContextPtr& context) {
  while (call.world.wait_for_lock(call.lock, *context)) {
  }
  const HeldLock held(context->locked);
  wait_for_streams(call, *context);
}

}  // namespace

void wait_for_context(Call& call, const ContextPtr& context) {
  if (call.lock_use == LockUse::kHolds)
    wait_with_lock(call, context);
  else
    wait_for_streams(call, *context);
}

CUresult set_local_memory_aside(Call& call, const ContextPtr& context, size_t local_bytes) {
  const auto set = context->limits.find(CU_LIMIT_STACK_SIZE);
  if (local_bytes <= (set != context->limits.end() ? set->second : kStackBytes))
    return CUDA_SUCCESS;
  wait_with_lock(call, context);
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  context->limits[CU_LIMIT_STACK_SIZE] = local_bytes;
  return take_memory(call.world, *context, local_bytes);
}

void wait_for_everybody(Call& call) {
  const auto contexts = call.world.contexts.all();  // a copy: other threads may destroy some
  for (const auto& [handle, context] : contexts)
    if (context->alive) wait_for_streams(call, *context);
}

void destroy(Call& call, const ContextPtr& context) {
  World& world = call.world;
  world.run_out(call.lock, [&] { return is_idle(*context); });
  if (!context->alive) return;  // another thread destroyed it meanwhile
  world.scheduler.cancel_all(*context);
  const auto belongs = [&](const auto& object) { return object.context.lock() == context; };
  world.functions.remove_if(belongs);
  world.modules.remove_if(belongs);
  world.events.remove_if(belongs);
  world.streams.remove_if(belongs);
  std::erase_if(world.captures, [&](const CapturePtr& capture) {
    const StreamPtr origin = capture->origin.lock();
    return origin == nullptr || belongs(*origin);
  });
  context->streams.clear();
  context->threads.clear();
  context->legacy = nullptr;
  context->peers.clear();
  context->limits.clear();
  context->alive = false;
  world.memory.remove_all_of(context->id);
  world.memory.arena(context->gpu).refund(std::exchange(context->taken_bytes, 0));
}

namespace {

CUresult create(Call& call, CUcontext* out, unsigned flags, CUdevice device) {
  if (out == nullptr || !known_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(check_device(call, device));
  BRAID_TRY(refuse_during_capture(call));
  auto context = std::make_shared<Context>();
  context->device = device;
  context->gpu = call.world.visible[device];
  context->handle = call.world.contexts.add(context);
  if (const CUresult result = revive(call, *context, flags); result != CUDA_SUCCESS) {
    call.world.contexts.remove(context->handle);
    return result;
  }
  context->uses = 1;
  call.thread.contexts.push_back(context->handle);
  *out = context->handle;
  return CUDA_SUCCESS;
}

CUresult create_with_affinity(Call& call, CUcontext* out, CUexecAffinityParam*, int count,
                              unsigned flags, CUdevice device) {
  if (count != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return create(call, out, flags, device);
}

CUresult create_with_params(Call& call, CUcontext* out, CUctxCreateParams* params, unsigned flags,
                            CUdevice device) {
  if (params != nullptr && params->numExecAffinityParams != 0)
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  if (params != nullptr && params->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return create(call, out, flags, device);
}

// Waits for the streams of the other contexts too (seen on 2xH200).
CUresult destroy_context(Call& call, CUcontext handle) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(context, find_context(call, handle));
  if (call.world.primaries[context->device] == context) return CUDA_ERROR_INVALID_CONTEXT;
  wait_for_everybody(call);
  destroy(call, context);
  if (!call.thread.contexts.empty() && call.thread.contexts.back() == handle)
    call.thread.contexts.pop_back();
  return CUDA_SUCCESS;
}

CUresult attach(Call& call, CUcontext* out, unsigned flags) {
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(context, current_context(call));
  if (context->uses == 0) return CUDA_ERROR_INVALID_CONTEXT;  // a primary one: retained instead
  ++context->uses;
  *out = context->handle;
  return CUDA_SUCCESS;
}

// A primary context, which is retained instead, takes no notice (docs/measurements,
// 2026-11-27-4xH100).
CUresult detach(Call& call, CUcontext handle) {
  BRAID_LET(context, current_context(call));
  if (context->handle != handle) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->uses == 0) return CUDA_SUCCESS;
  return --context->uses == 0 ? destroy_context(call, handle) : CUDA_SUCCESS;
}

CUresult push(Call& call, CUcontext handle) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(find_context(call, handle).status());
  call.thread.contexts.push_back(handle);
  return CUDA_SUCCESS;
}

CUresult pop(Call& call, CUcontext* out) {
  if (call.thread.contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (out != nullptr) *out = call.thread.contexts.back();
  call.thread.contexts.pop_back();
  return CUDA_SUCCESS;
}

CUresult set_current(Call& call, CUcontext handle) {
  std::vector<CUcontext>& stack = call.thread.contexts;
  if (handle == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  // The handle of a primary context may become current before the context is retained.
  const ContextPtr context = call.world.contexts.find(handle);
  if (context == nullptr || call.world.primaries[context->device] != context)
    BRAID_TRY(find_context(call, handle).status());
  if (stack.empty())
    stack.push_back(handle);
  else
    stack.back() = handle;
  return CUDA_SUCCESS;
}

CUresult get_current(Call& call, CUcontext* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = call.thread.contexts.empty() ? nullptr : call.thread.contexts.back();
  return CUDA_SUCCESS;
}

CUresult get_device(Call& call, CUdevice* device) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (call.thread.contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  const ContextPtr context = call.world.contexts.find(call.thread.contexts.back());
  if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult synchronize(Call& call) {
  BRAID_LET(context, current_context(call));
  for (const StreamPtr& stream : context->streams)
    if (stream->capture != nullptr) {
      stream->capture->valid = false;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  wait_for_context(call, context);
  call.world.clock.spend_us(call.world.server.costs.synchronize_us.value);
  Scheduler::prune(*context);
  return context->error;
}

// Null stands for the current one.
Found<ContextPtr> find_or_current(Call& call, CUcontext handle) {
  return handle == nullptr ? current_context(call) : find_context(call, handle);
}

CUresult get_api_version(Call& call, CUcontext handle, unsigned* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(find_or_current(call, handle).status());
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult get_flags(Call& call, unsigned* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(context, current_context(call));
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult set_flags(Call& call, unsigned flags) {
  if (!known_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(context, current_context(call));
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult get_id(Call& call, CUcontext handle, unsigned long long* id) {
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(context, find_or_current(call, handle));
  *id = context->id;
  return CUDA_SUCCESS;
}

// CUDA's own defaults on a 64-bit server.
Found<size_t> default_limit(CUlimit limit) {
  switch (static_cast<int>(limit)) {
    case CU_LIMIT_STACK_SIZE: return size_t{kStackBytes};
    case CU_LIMIT_PRINTF_FIFO_SIZE: return size_t{7340032};
    case CU_LIMIT_MALLOC_HEAP_SIZE: return size_t{8388608};
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH: return size_t{2};
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: return size_t{2048};
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: return size_t{64};
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE: return size_t{0};
    default: return CUDA_ERROR_UNSUPPORTED_LIMIT;
  }
}

CUresult get_limit(Call& call, size_t* value, CUlimit limit) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_LET(context, current_context(call));
  BRAID_LET(usual, default_limit(limit));
  const auto set = context->limits.find(limit);
  *value = set != context->limits.end() ? set->second : usual;
  return CUDA_SUCCESS;
}

CUresult set_limit(Call& call, CUlimit limit, size_t value) {
  BRAID_LET(context, current_context(call));
  BRAID_TRY(default_limit(limit).status());
  if (limit == CU_LIMIT_STACK_SIZE) {
    if (value > kMostStackBytes) return CUDA_ERROR_INVALID_VALUE;
    BRAID_TRY(take_memory(call.world, *context, value));
  }
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

CUresult get_priority_range(Call& call, int* least, int* greatest) {
  BRAID_TRY(current_context(call).status());
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult get_cache_config(Call& call, CUfunc_cache* config) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  BRAID_TRY(current_context(call).status());
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}

CUresult set_cache_config(Call& call, CUfunc_cache) { return current_context(call).status(); }

}  // namespace

BRAID_ENTRY(cuCtxCreate_v2, 3, create)
BRAID_ENTRY(cuCtxCreate_v3, 5, create_with_affinity)
BRAID_ENTRY(cuCtxCreate_v4, 4, create_with_params)
BRAID_ENTRY_V2(cuCtxDestroy, 1, destroy_context)
BRAID_ENTRY(cuCtxAttach, 2, attach)
BRAID_ENTRY(cuCtxDetach, 1, detach)
BRAID_ENTRY_V2(cuCtxPushCurrent, 1, push)
BRAID_ENTRY_V2(cuCtxPopCurrent, 1, pop)
BRAID_ENTRY(cuCtxSetCurrent, 1, set_current)
BRAID_ENTRY(cuCtxGetCurrent, 1, get_current)
BRAID_ENTRY(cuCtxGetDevice, 1, get_device)
BRAID_QUERY(cuCtxSynchronize, 0, synchronize)
BRAID_ENTRY(cuCtxGetApiVersion, 2, get_api_version)
BRAID_ENTRY(cuCtxGetFlags, 1, get_flags)
BRAID_ENTRY(cuCtxSetFlags, 1, set_flags)
BRAID_ENTRY(cuCtxGetId, 2, get_id)
BRAID_ENTRY(cuCtxGetLimit, 2, get_limit)
BRAID_ENTRY(cuCtxSetLimit, 2, set_limit)
BRAID_ENTRY(cuCtxGetStreamPriorityRange, 2, get_priority_range)
BRAID_ENTRY(cuCtxGetCacheConfig, 1, get_cache_config)
BRAID_ENTRY(cuCtxSetCacheConfig, 1, set_cache_config)

}  // namespace braid::emulator
