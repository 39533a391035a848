// How to write an entry point. The exported function is one line: BRAID_ENTRY names the symbol, the
// number of its parameters, and the function that does the work and has these parameters (where
// cuda.h declares the symbol, the compiler compares). `enter` does the common part of all calls: it
// checks that the driver is initialised, takes the lock, adds the cost in virtual time, and injects
// faults.
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
#include <optional>
#include <tuple>
#include <utility>

#include "base/try.h"
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

/// The cost of a call in the program's virtual time.
enum class Cost { kNothing, kQuery, kEvent, kEnqueue };

void begin_call(Call& call, Cost cost);

/// The model's rules for an entry point, by its symbol.
struct Rules {
  LockUse lock_use;
  bool is_unsafe_while_recording;
};
constexpr Rules rules_of(std::string_view symbol) {
  return {lock_use(symbol), is_unsafe_while_recording(symbol)};
}

/// Call it before an action that is unsafe while a graph is recorded.
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

// `count` parameters with the types of the work's, and the expression that passes them on.
#define BRAID_PARAMETER(index, ...) Parameter<decltype(__VA_ARGS__), index> a##index
#define BRAID_PARAMETERS_0(...)
#define BRAID_PARAMETERS_1(...) BRAID_PARAMETER(0, __VA_ARGS__)
#define BRAID_PARAMETERS_2(...) BRAID_PARAMETERS_1(__VA_ARGS__), BRAID_PARAMETER(1, __VA_ARGS__)
#define BRAID_PARAMETERS_3(...) BRAID_PARAMETERS_2(__VA_ARGS__), BRAID_PARAMETER(2, __VA_ARGS__)
#define BRAID_PARAMETERS_4(...) BRAID_PARAMETERS_3(__VA_ARGS__), BRAID_PARAMETER(3, __VA_ARGS__)
#define BRAID_PARAMETERS_5(...) BRAID_PARAMETERS_4(__VA_ARGS__), BRAID_PARAMETER(4, __VA_ARGS__)
#define BRAID_PARAMETERS_6(...) BRAID_PARAMETERS_5(__VA_ARGS__), BRAID_PARAMETER(5, __VA_ARGS__)
#define BRAID_PARAMETERS_7(...) BRAID_PARAMETERS_6(__VA_ARGS__), BRAID_PARAMETER(6, __VA_ARGS__)
#define BRAID_PARAMETERS_8(...) BRAID_PARAMETERS_7(__VA_ARGS__), BRAID_PARAMETER(7, __VA_ARGS__)
#define BRAID_PARAMETERS_9(...) BRAID_PARAMETERS_8(__VA_ARGS__), BRAID_PARAMETER(8, __VA_ARGS__)
#define BRAID_PARAMETERS_10(...) BRAID_PARAMETERS_9(__VA_ARGS__), BRAID_PARAMETER(9, __VA_ARGS__)
#define BRAID_PARAMETERS_11(...) BRAID_PARAMETERS_10(__VA_ARGS__), BRAID_PARAMETER(10, __VA_ARGS__)
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

#define BRAID_DEFINE_ENTRY(symbol, per_thread, cost, count, ...)                          \
  extern "C" CUresult CUDAAPI symbol(BRAID_PARAMETERS_##count(__VA_ARGS__)) {             \
    constexpr auto rules_ = rules_of(#symbol);                                            \
    return enter(#symbol, per_thread, rules_, cost, __VA_ARGS__ BRAID_ARGUMENTS_##count); \
  }

// Use it inside braid::emulator, outside unnamed namespaces. The work is the last argument.
#define BRAID_ENTRY(symbol, count, ...) \
  BRAID_DEFINE_ENTRY(symbol, false, Cost::kNothing, count, __VA_ARGS__)
#define BRAID_QUERY(symbol, count, ...) \
  BRAID_DEFINE_ENTRY(symbol, false, Cost::kQuery, count, __VA_ARGS__)
#define BRAID_ENTRY_STREAM(symbol, suffix, cost, count, ...)  \
  BRAID_DEFINE_ENTRY(symbol, false, cost, count, __VA_ARGS__) \
  BRAID_DEFINE_ENTRY(symbol##suffix, true, cost, count, __VA_ARGS__)
// Defines the first and the second form of a symbol that do the same.
#define BRAID_ENTRY_V2(symbol, ...) \
  BRAID_ENTRY(symbol, __VA_ARGS__)  \
  BRAID_ENTRY(symbol##_v2, __VA_ARGS__)
#define BRAID_ENTRY_STREAM_V2(symbol, ...) \
  BRAID_ENTRY_STREAM(symbol, __VA_ARGS__)  \
  BRAID_ENTRY_STREAM(symbol##_v2, __VA_ARGS__)

/// For BRAID_TRY and BRAID_LET (base/try.h).
inline bool failed(CUresult result) { return result != CUDA_SUCCESS; }

/// The object of a handle or a location, or the error if there is none.
template <typename T>
class Found {
 public:
  Found(T value) : value_(std::move(value)) {}
  Found(CUresult error) : status_(error) {}
  bool ok() const { return status_ == CUDA_SUCCESS; }
  CUresult status() const { return status_; }
  T& value() { return *value_; }

 private:
  CUresult status_ = CUDA_SUCCESS;
  std::optional<T> value_;
};

/// The object of a handle, from one of the world's tables.
template <typename Handle, typename Object, Reuse reuse>
Found<std::shared_ptr<Object>> find_object(const HandleTable<Handle, Object, reuse>& table,
                                           Handle handle) {
  auto object = table.find(handle);
  if (object == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return object;
}

/// The following functions find contexts, streams and memory. A call that needs contexts' locks
/// (model/context_lock.h) waits for them there; objects that it looked up before may have gone
/// meanwhile.

/// The calling thread's current context, alive and without a sticky error.
Found<ContextPtr> current_context(Call& call);
/// A context by handle, alive; it may have a sticky error.
Found<ContextPtr> find_context(Call& call, CUcontext handle);
/// A stream by handle, or the default stream of null, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD. Its
/// context is alive and has no sticky error.
Found<StreamPtr> find_stream(Call& call, CUstream handle);
Found<EventPtr> find_event(Call& call, CUevent handle);
/// The context of an allocation; null if it is mapped or pooled.
ContextPtr owner_of(const Call& call, const Allocation& allocation);

/// Waits for the end of work in the stream. Returns the sticky error of its context, if it has got
/// one.
CUresult wait_for_end(Call& call, const StreamPtr& stream, const CompletionPtr& end);

/// Call it before work is enqueued: fails if the stream's capture is spoilt, or if the legacy
/// stream would depend on one. Work that is then enqueued in a capturing stream is recorded, and
/// has no end to wait for.
CUresult check_capture(const StreamPtr& stream);
/// The same for a synchronous call, which cannot wait for anything in a recorded stream.
CUresult check_capture(const StreamPtr& stream, bool is_synchronous);

}  // namespace braid::emulator
