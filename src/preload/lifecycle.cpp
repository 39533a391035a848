// What happens around the copies: host memory is pinned (braid gets ready), contexts come and go,
// peer access is asked for. None of this is on a copy's path, so it may allocate and lock.
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "preload/access.h"
#include "preload/devices.h"
#include "preload/entries.h"
#include "preload/lifecycle.h"
#include "preload/opener.h"
#include "preload/peers.h"
#include "preload/primaries.h"
#include "preload/runtime.h"

namespace braid::preload {
namespace {

// Never destroyed: threads of the program may still be here while the process exits.
struct Contexts {
  std::mutex lock;
  std::map<CUcontext, int> made;  // by the program, and not yet destroyed: how often it holds each
  std::set<CUcontext> waiting;    // to be targets once the relays are open; null: none of its own
  PeerLedger peers;
};

Contexts& contexts() {
  static Contexts& instance = *new Contexts;  // owner: the process, until its end
  return instance;
}

void add_target(multipath::Engine& open, CUcontext context) {
  const Status status = open.add_context(context);
  if (!status.ok()) say_once((status.message() + ". Copies there stay native").c_str());
}

// With the contexts locked. While relays open the context waits: it becomes a target at the end.
bool put_off(Contexts& all, CUcontext context) {
  const multipath::Engine* open = engine();
  if (open == nullptr || !open->is_opening()) return false;
  all.waiting.insert(context);
  return true;
}

// With primary contexts held, and the contexts locked.
void make_target(Contexts& all, CUcontext context) {
  multipath::Engine* open = engine();
  if (open != nullptr && !put_off(all, context)) add_target(*open, context);
}

CUcontext current_context() {
  CUcontext context = nullptr;
  driver()->cuCtxGetCurrent(&context);
  return context;
}

// Also when the engine could not be opened: some pairs may have been enabled by then.
bool braid_enables_peers() {
  return state() == State::kPreparing || state() == State::kOpen || state() == State::kFailed;
}

void memory_pinned() noexcept {
  if (Inside::now() || driver() == nullptr) return;
  const Inside inside;
  get_ready();
}

void context_made(CUcontext context) noexcept try {
  if (Inside::now() || state() == State::kForked) return;
  const Inside inside;
  Contexts& all = contexts();
  {
    const std::lock_guard hold(all.lock);
    all.made[context] = 1;
    if (engine() == nullptr || put_off(all, context)) return;
  }
  const auto primaries = hold_primaries();
  const std::lock_guard hold(all.lock);
  make_target(all, context);
} catch (...) {
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
  if (given.is_end) all.waiting.erase(context);
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
  if (given.is_end) make_target(all, given.holds > 0 ? context : nullptr);
} catch (...) {
}

void forget_peers_of(CUcontext context) noexcept try {
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  all.peers.forget(context);
} catch (...) {
}

CUresult end_context(HookId hook, CUcontext context, Holds which) {
  auto* native = real<CUresult(CUcontext)>(hook);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (Inside::now() || context == nullptr || state() == State::kForked) return native(context);
  const Inside inside;
  const GivenUp given = give_up(context, which);
  const CUresult result = native(context);
  if (result != CUDA_SUCCESS)
    take_back(context, given);
  else if (given.is_end)
    forget_peers_of(context);
  return result;
}

using EnablePeer = CUresult(CUcontext, unsigned);
using DisablePeer = CUresult(CUcontext);

CUresult enable_peer(EnablePeer* native, CUcontext peer, unsigned flags) try {
  const Inside inside;
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  const CUresult answer = native(peer, flags);
  return all.peers.enabled(current_context(), peer, answer, braid_enables_peers());
} catch (...) {
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// The access itself stays, because braid's copies may be using it; only the answer is the native
// one. Without the engine the driver answers.
CUresult disable_peer(DisablePeer* native, CUcontext peer) {
  const Inside inside;
  const auto primaries = hold_primaries();  // braid enables none meanwhile
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  const bool was_enabled = all.peers.disabled(current_context(), peer);
  if (!braid_enables_peers()) return native(peer);
  if (was_enabled) return CUDA_SUCCESS;
  // Not enabled by the program: enabling tells a pair that braid enabled, or that could be enabled,
  // from one that is an error in itself.
  const CUresult answer = driver()->cuCtxEnablePeerAccess(peer, 0);
  if (answer == CUDA_SUCCESS) native(peer);
  const bool is_pair = answer == CUDA_SUCCESS || answer == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  return is_pair ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : native(peer);
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

// All that the program has made while relays were opening, and before.
void finish_opening(multipath::Engine& open) {
  lend_memory_made_so_far(open);
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  add_target(open, nullptr);
  for (const auto& made : all.made) add_target(open, made.first);
  for (const CUcontext context : std::exchange(all.waiting, {})) add_target(open, context);
  open.begin();
  for (const std::string& problem : open.problems()) say_once(problem.c_str());
}

}  // namespace

void primary_context_made() noexcept try {
  Contexts& all = contexts();
  {
    const std::lock_guard hold(all.lock);
    if (engine() == nullptr || put_off(all, nullptr)) return;
  }
  const auto primaries = hold_primaries();
  const std::lock_guard hold(all.lock);
  make_target(all, nullptr);
} catch (...) {
}

void forget_context(CUcontext context, Ending ending) noexcept try {
  Contexts& all = contexts();
  const std::lock_guard hold(all.lock);
  all.peers.forget(context);
  all.waiting.erase(context);
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
  Contexts& all = contexts();
  {
    const std::lock_guard hold(all.lock);
    if (put_off(all, current_context())) return;
  }
  bool is_first = false;
  {
    const auto primaries = hold_primaries();
    is_first = prepare_engine_once();
    const std::lock_guard hold(all.lock);
    make_target(all, current_context());
  }
  const multipath::Engine* open = engine();
  if (is_first && open != nullptr && open->is_opening())
    open_relays(options().waits_for_relays ? Opening::kNow : Opening::kInBackground);
} catch (...) {
}

bool open_next_relay() noexcept try {
  const auto primaries = hold_primaries();
  multipath::Engine* open = engine();
  if (open == nullptr) return false;
  const auto is_more = open->open_next();
  if (!is_more.ok())
    give_engine_up(is_more.status().message().c_str());
  else if (!is_more.value())
    finish_opening(*open);
  return is_more.ok() && is_more.value();
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

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  auto* native = real<EnablePeer>(k_cuCtxEnablePeerAccess);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const bool is_ours = Inside::now() || driver() == nullptr || state() == State::kForked;
  return is_ours ? native(peer, flags) : enable_peer(native, peer, flags);
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  auto* native = real<DisablePeer>(k_cuCtxDisablePeerAccess);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const bool is_ours = Inside::now() || driver() == nullptr || state() == State::kForked;
  return is_ours ? native(peer) : disable_peer(native, peer);
}
