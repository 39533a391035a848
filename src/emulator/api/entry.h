// How an entry point is written. The exported function is one line: BRAID_ENTRY names the symbol,
// how many parameters it has, and the function that does the work, whose parameters they are (where
// cuda.h declares the symbol, the compiler compares). `enter` does what all calls have in common:
// is the driver initialised, the lock, the cost in virtual time, injected faults.
//
//   CUresult get_thing(Call& call, int* out);    // the work, under the lock
//   BRAID_ENTRY(cuThingGet, 1, get_thing)        // the symbol
//
// A function whose default stream depends on the symbol (_ptsz, _ptds) uses BRAID_ENTRY_STREAM,
// which defines both; `call.per_thread` tells them apart. See docs/emulator.md, "Adding an entry
// point".
#pragma once

#include <cuda.h>

#include <exception>
#include <new>
#include <tuple>
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

template <typename... Parameters>
CUresult enter(const char* name, bool per_thread, Rules rules, Cost cost,
               CUresult (&work)(Call&, Parameters...), Parameters... arguments) noexcept {
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
    return work(call, arguments...);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception&) {
    return CUDA_ERROR_UNKNOWN;
  }
}

template <typename Work>
struct Signature;
template <typename... Parameters>
struct Signature<CUresult(Call&, Parameters...)> {
  using Tuple = std::tuple<Parameters...>;
};
/// The type of a parameter of such a function, not counting the call.
template <typename Work, size_t index>
using Parameter = std::tuple_element_t<index, typename Signature<Work>::Tuple>;

// So many parameters, of the types that `work` has; and what hands them on.
#define BRAID_PARAMETER(index, work) Parameter<decltype(work), index> a##index
#define BRAID_PARAMETERS_0(work)
#define BRAID_PARAMETERS_1(work) BRAID_PARAMETER(0, work)
#define BRAID_PARAMETERS_2(work) BRAID_PARAMETERS_1(work), BRAID_PARAMETER(1, work)
#define BRAID_PARAMETERS_3(work) BRAID_PARAMETERS_2(work), BRAID_PARAMETER(2, work)
#define BRAID_PARAMETERS_4(work) BRAID_PARAMETERS_3(work), BRAID_PARAMETER(3, work)
#define BRAID_PARAMETERS_5(work) BRAID_PARAMETERS_4(work), BRAID_PARAMETER(4, work)
#define BRAID_PARAMETERS_6(work) BRAID_PARAMETERS_5(work), BRAID_PARAMETER(5, work)
#define BRAID_PARAMETERS_7(work) BRAID_PARAMETERS_6(work), BRAID_PARAMETER(6, work)
#define BRAID_PARAMETERS_8(work) BRAID_PARAMETERS_7(work), BRAID_PARAMETER(7, work)
#define BRAID_PARAMETERS_9(work) BRAID_PARAMETERS_8(work), BRAID_PARAMETER(8, work)
#define BRAID_PARAMETERS_10(work) BRAID_PARAMETERS_9(work), BRAID_PARAMETER(9, work)
#define BRAID_PARAMETERS_11(work) BRAID_PARAMETERS_10(work), BRAID_PARAMETER(10, work)
#define BRAID_ARGUMENTS_0
#define BRAID_ARGUMENTS_1 BRAID_ARGUMENTS_0, a0
#define BRAID_ARGUMENTS_2 BRAID_ARGUMENTS_1, a1
#define BRAID_ARGUMENTS_3 BRAID_ARGUMENTS_2, a2
#define BRAID_ARGUMENTS_4 BRAID_ARGUMENTS_3, a3
#define BRAID_ARGUMENTS_5 BRAID_ARGUMENTS_4, a4
#define BRAID_ARGUMENTS_6 BRAID_ARGUMENTS_5, a5
#define BRAID_ARGUMENTS_7 BRAID_ARGUMENTS_6, a6
#define BRAID_ARGUMENTS_8 BRAID_ARGUMENTS_7, a7
#define BRAID_ARGUMENTS_9 BRAID_ARGUMENTS_8, a8
#define BRAID_ARGUMENTS_10 BRAID_ARGUMENTS_9, a9
#define BRAID_ARGUMENTS_11 BRAID_ARGUMENTS_10, a10

#define BRAID_DEFINE_ENTRY(symbol, per_thread, cost, count, work)                  \
  extern "C" CUresult CUDAAPI symbol(BRAID_PARAMETERS_##count(work)) {             \
    constexpr auto rules_ = rules_of(#symbol);                                     \
    return enter(#symbol, per_thread, rules_, cost, work BRAID_ARGUMENTS_##count); \
  }

// Inside braid::emulator, outside of unnamed namespaces.
#define BRAID_ENTRY(symbol, count, work) \
  BRAID_DEFINE_ENTRY(symbol, false, Cost::kNothing, count, work)
#define BRAID_QUERY(symbol, count, work) \
  BRAID_DEFINE_ENTRY(symbol, false, Cost::kQuery, count, work)
#define BRAID_ENTRY_STREAM(symbol, suffix, cost, count, work) \
  BRAID_DEFINE_ENTRY(symbol, false, cost, count, work)        \
  BRAID_DEFINE_ENTRY(symbol##suffix, true, cost, count, work)

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
