// How an entry point is written. The exported function is one line: BRAID_ENTRY names the symbol,
// the function that does the work, and the parameters. `enter` does what all calls have in common:
// is the driver initialised, the lock, the cost in virtual time, injected faults.
//
//   CUresult get_thing(Call& call, int* out);                       // the work, under the lock
//   BRAID_ENTRY(cuThingGet, get_thing, (int* out), (out))           // the symbol
//
// A function whose default stream depends on the symbol (_ptsz, _ptds) uses BRAID_ENTRY_STREAM,
// which defines both; `call.per_thread` tells them apart. See docs/emulator.md, "Adding an entry
// point".
#pragma once

#include <cuda.h>

#include <exception>
#include <new>
#include <utility>

#include "emulator/model/capture_rules.h"
#include "emulator/model/context_lock.h"
#include "emulator/model/world.h"
#include "emulator/process/process.h"

namespace braid::emulator {

struct Call {
  World& world;
  Lock& lock;
  ThreadState& thread;
  bool per_thread = false;  ///< the NULL stream is the thread's own
  LockUse lock_use = LockUse::kNever;
};

/// What a call costs the program's virtual time.
enum class Cost { kNothing, kQuery, kEvent, kEnqueue };

void begin_call(Call& call, Cost cost);

/// What the rules of the model say of an entry point, by its symbol.
struct Rules {
  LockUse lock_use;
  bool is_unsafe_while_recording;
};
constexpr Rules rules_of(std::string_view symbol) {
  return {lock_use(symbol), is_unsafe_while_recording(symbol)};
}

/// Before a call that is unsafe while a graph is recorded.
CUresult refuse_during_capture(Call& call);

template <typename Work>
CUresult enter(const char* name, bool per_thread, Rules rules, Cost cost, Work&& work) noexcept {
  World* world = world_of_process();
  if (world == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  ThreadState& thread = this_thread();
  if (thread.in_host_function) return CUDA_ERROR_NOT_PERMITTED;
  try {
    Lock lock(world->mutex);
    const Presence::Visit visit(world->presence);
    Call call{*world, lock, thread, per_thread, rules.lock_use};
    begin_call(call, cost);
    if (const CUresult fault = world->faults.count_call(name); fault != CUDA_SUCCESS) return fault;
    if (rules.is_unsafe_while_recording)
      if (const CUresult refused = refuse_during_capture(call); refused != CUDA_SUCCESS)
        return refused;
    return std::forward<Work>(work)(call);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception&) {
    return CUDA_ERROR_UNKNOWN;
  }
}

// The two halves of an argument list: BRAID_ARGS(x, y) is ", x, y"; nothing stays nothing.
#define BRAID_ARGS(...) __VA_OPT__(, ) __VA_ARGS__

#define BRAID_DEFINE_ENTRY(symbol, per_thread, cost, work, params, args)                          \
  extern "C" CUresult CUDAAPI symbol params {                                                     \
    constexpr auto rules_ = ::braid::emulator::rules_of(#symbol);                                 \
    return ::braid::emulator::enter(                                                              \
        #symbol, per_thread, rules_, cost,                                                        \
        [&](::braid::emulator::Call& call_) -> CUresult { return work(call_ BRAID_ARGS args); }); \
  }

#define BRAID_ENTRY(symbol, work, params, args) \
  BRAID_DEFINE_ENTRY(symbol, false, ::braid::emulator::Cost::kNothing, work, params, args)
#define BRAID_QUERY(symbol, work, params, args) \
  BRAID_DEFINE_ENTRY(symbol, false, ::braid::emulator::Cost::kQuery, work, params, args)
#define BRAID_ENTRY_STREAM(symbol, suffix, cost, work, params, args) \
  BRAID_DEFINE_ENTRY(symbol, false, cost, work, params, args)        \
  BRAID_DEFINE_ENTRY(symbol##suffix, true, cost, work, params, args)

// Before enqueuing work: leaves when a capture forbids it. What is then enqueued in a stream that
// is being captured is recorded, and has no end to wait for.
#define BRAID_CAPTURE(stream) BRAID_TRY(::braid::emulator::check_capture(stream))

// Inside an entry point: leaves with the error of a step that failed.
#define BRAID_TRY(step) \
  if (const CUresult result_ = (step); result_ != CUDA_SUCCESS) return result_

/// A call that needs contexts' locks (model/context_lock.h) waits for them in the functions below
/// which find contexts, streams and memory: what it looked up before may have gone meanwhile.

/// The calling thread's current context, alive and without a sticky error.
CUresult current_context(Call& call, ContextPtr& context);
/// A context by handle, alive; its sticky error is not looked at.
CUresult find_context(Call& call, CUcontext handle, ContextPtr& context);
/// A stream by handle, or the default stream that null, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD
/// stands for. Its context is alive and has no sticky error.
CUresult find_stream(Call& call, CUstream handle, StreamPtr& stream);
CUresult find_event(Call& call, CUevent handle, EventPtr& event);
/// Of an allocation; null where it is mapped or pooled.
ContextPtr owner_of(const Call& call, const Allocation& allocation);
/// The NULL stream of a call without a stream parameter.
CUresult default_stream(Call& call, StreamPtr& stream);

/// Waits for the end of work in the stream; the sticky error that its context may have got.
CUresult wait_for_end(Call& call, const StreamPtr& stream, const CompletionPtr& end);

/// Before work is enqueued: an error when the stream's capture is spoilt, or when the legacy stream
/// would depend on one.
CUresult check_capture(const StreamPtr& stream);
/// The same for a synchronous call, which has nothing to wait for in a stream that is recorded.
CUresult check_capture(const StreamPtr& stream, bool is_synchronous);

}  // namespace braid::emulator
