// The entry points that make and end contexts, and that pin host memory. None of them is on a
// copy's path, so they may allocate and lock.
#include "preload/binding.h"
#include "preload/contexts.h"
#include "preload/devices.h"
#include "preload/entries.h"
#include "preload/helper.h"
#include "preload/state.h"

namespace braid::preload {
namespace {

void memory_pinned() noexcept {
  if (is_for_driver() || !options().waits_for_relays) return;
  const ReentryGuard guard;
  create_engine();
  const multipath::Engine* open = engine();
  if (open != nullptr && !open->are_relays_open()) open_relays(Opening::kNow);
}

// The driver refuses to destroy a primary context, at once. To forget it, and adopt it anew, would
// wait for its streams.
CUresult end_context(HookId hook, CUcontext context) {
  if (is_for_driver() || context == nullptr) return forward(hook, context);
  const ReentryGuard guard;
  multipath::Engine* open = engine();
  if (open != nullptr && open->holds_context(context)) return forward(hook, context);
  const bool is_made = forget_context(context, Ending::kDestroyed);
  const CUresult result = forward(hook, context);
  if (result != CUDA_SUCCESS) take_back(context, is_made);
  return result;
}

// Calls the driver's function, then `after` if it succeeded.
template <typename After, typename... Arguments>
CUresult call_then(HookId hook, After after, Arguments... arguments) {
  const CUresult result = forward(hook, arguments...);
  if (result == CUDA_SUCCESS) after();
  return result;
}

}  // namespace
}  // namespace braid::preload

using namespace braid::preload;

CUresult cuMemHostAlloc(void** memory, size_t size_bytes, unsigned flags) {
  return call_then(k_cuMemHostAlloc, memory_pinned, memory, size_bytes, flags);
}

CUresult cuMemAllocHost(void** memory, unsigned size_bytes) {
  return call_then(k_cuMemAllocHost, memory_pinned, memory, size_bytes);
}

CUresult cuMemAllocHost_v2(void** memory, size_t size_bytes) {
  return call_then(k_cuMemAllocHost_v2, memory_pinned, memory, size_bytes);
}

CUresult cuMemHostRegister(void* memory, size_t size_bytes, unsigned flags) {
  return call_then(k_cuMemHostRegister, memory_pinned, memory, size_bytes, flags);
}

CUresult cuMemHostRegister_v2(void* memory, size_t size_bytes, unsigned flags) {
  return call_then(k_cuMemHostRegister_v2, memory_pinned, memory, size_bytes, flags);
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return call_then(
      k_cuCtxCreate_v2, [&] { context_made(*context); }, context, flags,
      to_make_context_on(device));
}

CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* affinities, int count,
                        unsigned flags, CUdevice device) {
  return call_then(
      k_cuCtxCreate_v3, [&] { context_made(*context); }, context, affinities, count, flags,
      to_make_context_on(device));
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned flags,
                        CUdevice device) {
  return call_then(
      k_cuCtxCreate_v4, [&] { context_made(*context); }, context, parameters, flags,
      to_make_context_on(device));
}

CUresult cuCtxDestroy(CUcontext context) { return end_context(k_cuCtxDestroy, context); }

CUresult cuCtxDestroy_v2(CUcontext context) { return end_context(k_cuCtxDestroy_v2, context); }

CUresult cuCtxDetach(CUcontext context) { return end_context(k_cuCtxDetach, context); }
