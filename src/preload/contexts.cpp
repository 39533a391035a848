// What happens around the copies: contexts come and go, host memory is pinned. None of this is on a
// copy's path, so it may allocate and lock.
#include <map>
#include <mutex>

#include "preload/access.h"
#include "preload/devices.h"
#include "preload/entries.h"
#include "preload/helper.h"
#include "preload/lifecycle.h"
#include "preload/primaries.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

// Never destroyed: threads of the program may still be here while the process exits.
struct Contexts {
  std::mutex lock;
  std::map<CUcontext, int> made;  // by the program, and not yet destroyed: how often it holds each
};

Contexts& contexts() {
  static Contexts& instance = *new Contexts;  // owner: the process, until its end
  return instance;
}

// With primary contexts held, and the contexts locked. Null: the primary contexts that are active.
void make_known(CUcontext context) {
  multipath::Engine* open = engine();
  if (open == nullptr) return;
  const Status status = open->add_context(context);
  if (!status.ok()) say_once((status.message() + ". Copies there stay native").c_str());
}

// Before the program can hold a stream in it: to load code waits for the context's streams.
void context_made(CUcontext context) noexcept try {
  if (Inside::now() || driver() == nullptr || state() == State::kForked) return;
  const Inside inside;
  const auto primaries = hold_primaries();
  prepare_engine_once();
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  all.made[context] = 1;
  make_known(context);
} catch (...) {
}

void memory_pinned() noexcept {
  if (Inside::now() || driver() == nullptr || !options().waits_for_relays) return;
  const Inside inside;
  get_ready();
  const multipath::Engine* open = engine();
  if (open != nullptr && !open->is_open()) open_relays(Opening::kNow);
}

// The program holds the context once more: cuCtxAttach, which has long been deprecated.
void context_attached(CUcontext context) noexcept try {
  if (Inside::now() || state() == State::kForked) return;
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  if (const auto known = all.made.find(context); known != all.made.end()) ++known->second;
} catch (...) {
}

// What the program gives up of a context that it has made.
enum class Holds : bool {
  kOne,  ///< detaching; the last one ends the context
  kAll,
};
struct GivenUp {
  int holds = 0;        ///< none: made in a way that braid has not seen
  bool is_end = false;  ///< the engine has forgotten the context
};

// Before the driver ends the context, and before it has agreed.
GivenUp give_up(CUcontext context, Holds which) noexcept try {
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  const auto known = all.made.find(context);
  GivenUp given{0, which == Holds::kAll};
  if (known != all.made.end()) {
    given.holds = which == Holds::kAll ? known->second : 1;
    known->second -= given.holds;
    given.is_end = known->second == 0;
    if (given.is_end) all.made.erase(known);
  }
  if (multipath::Engine* open = engine(); open != nullptr && given.is_end)
    open->forget_context(context);
  return given;
} catch (...) {
  return {};
}

// The context is what it was; memory that the program has pinned by now must be copied as before.
void take_back(CUcontext context, GivenUp given) noexcept try {
  const auto primaries = hold_primaries();
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  if (given.holds > 0) all.made[context] += given.holds;
  if (given.is_end) make_known(given.holds > 0 ? context : nullptr);
} catch (...) {
}

CUresult end_context(HookId hook, CUcontext context, Holds which) {
  auto* native = real<CUresult(CUcontext)>(hook);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (Inside::now() || context == nullptr || state() == State::kForked) return native(context);
  const Inside inside;
  const GivenUp given = give_up(context, which);
  const CUresult result = native(context);
  if (result != CUDA_SUCCESS) take_back(context, given);
  return result;
}

// Calls the driver's function, then `after` if it succeeded.
template <typename After, typename... Arguments>
CUresult call_then(HookId hook, After after, Arguments... arguments) {
  auto* native = real<CUresult(Arguments...)>(hook);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const CUresult result = native(arguments...);
  if (result == CUDA_SUCCESS) after();
  return result;
}

}  // namespace

void primary_context_made() noexcept { get_ready(); }

void forget_context(CUcontext context, Ending ending) noexcept try {
  const std::lock_guard hold(contexts().lock);
  multipath::Engine* open = engine();
  if (open == nullptr) return;
  if (ending == Ending::kReleased)
    open->release_context(context);
  else
    open->forget_context(context);
} catch (...) {
}

void get_ready() noexcept try {
  if (state() != State::kIdle && state() != State::kOpen)
    return;  // another thread prepares, or none
  const auto primaries = hold_primaries();
  prepare_engine_once();
  const std::lock_guard hold(contexts().lock);
  make_known(nullptr);
} catch (...) {
}

// Holds none of the locks that the program's calls wait for: the driver may make this thread wait
// for a lock that the program holds.
bool open_next_relay() noexcept try {
  multipath::Engine* open = engine();
  if (open == nullptr) return false;
  const auto is_more = open->open_next();
  if (is_more.ok() && is_more.value()) return true;
  if (!is_more.ok()) say_once((is_more.status().message() + ". Every copy stays native").c_str());
  lend_memory_made_so_far(*open);
  open->begin();
  for (const std::string& problem : open->problems()) say_once(problem.c_str());
  return false;
} catch (...) {
  give_engine_up("out of memory while opening relays");
  return false;
}

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

CUresult cuCtxDestroy(CUcontext context) {
  return end_context(k_cuCtxDestroy, context, Holds::kAll);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  return end_context(k_cuCtxDestroy_v2, context, Holds::kAll);
}

CUresult cuCtxAttach(CUcontext* context, unsigned flags) {
  return call_then(
      k_cuCtxAttach, [&] { context_attached(*context); }, context, flags);
}

CUresult cuCtxDetach(CUcontext context) { return end_context(k_cuCtxDetach, context, Holds::kOne); }
