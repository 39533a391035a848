// What every intercepted copy goes through. Passing through is the default: a copy is offered to
// the engine, and whatever the engine does not take goes to the driver with the program's own
// arguments.
//
// On a copy's path nothing allocates driver memory and nothing blocks, except that a synchronous
// copy waits for its stream, and a copy of pageable memory for its bytes, as they do natively.
#pragma once

#include <optional>
#include <span>

#include "cuda/relaxed_capture.h"
#include "multipath/classify.h"
#include "preload/binding.h"
#include "preload/observe.h"
#include "preload/state.h"

namespace braid::preload {

enum class Wait : bool { kNo, kYes };

/// The program's stream as a handle that means the same whichever entry point it came through.
inline CUstream legacy(CUstream stream) { return stream == nullptr ? CU_STREAM_LEGACY : stream; }
inline CUstream per_thread(CUstream stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

/// A copy as the engine wants it. `batch.segments` may lie anywhere that outlives the call, or in
/// `only`.
struct Described {
  multipath::Batch batch;
  multipath::Segment only;
  std::optional<multipath::Ends> ends;  ///< of a copy that does not say which way it goes

  /// A program says that a copy is urgent by the priority of its stream.
  void set(multipath::Direction direction, std::span<const multipath::Segment> segments,
           CUstream stream);
  /// Asks the driver which way; nothing when the copy is not between host memory and a GPU.
  std::optional<multipath::Direction> find_direction(CUdeviceptr to, CUdeviceptr from);
};

/// The ends of a piece that goes this way.
multipath::Segment segment_of(multipath::Direction direction, CUdeviceptr to, CUdeviceptr from,
                              uint64_t size_bytes);

multipath::Outcome offer(const multipath::Batch& batch);

/// A copy of pageable memory that the engine declined; nothing when it is native.
std::optional<multipath::Staged> stage(const multipath::Batch& batch, multipath::Verdict declined,
                                       Wait wait) noexcept;

/// `describe(what)` says false when the copy is nothing for braid; it is asked only when the copy
/// has `least_bytes` or more, and may throw bad_alloc.
template <typename Describe, typename... Arguments>
CUresult intercept(HookId hook, Wait wait, uint64_t size_bytes, uint64_t least_bytes,
                   Describe describe, Arguments... arguments) {
  auto* native = real<CUresult(Arguments...)>(hook);
  if (native == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (Inside::now()) return native(arguments...);
  const Inside inside;
  Observation observation;
  Described what;
  multipath::Outcome outcome = multipath::Verdict::kBelowThreshold;
  bool is_described = false;
  if (size_bytes >= least_bytes) try {
      is_described = driver() != nullptr && describe(what);
      outcome = multipath::Verdict::kNotLinear;
      if (is_described) outcome = offer(what.batch);
    } catch (...) {
      outcome = multipath::Verdict::kNotReady;  // no memory to describe it with
    }
  std::optional<multipath::Staged> staged;
  if (is_described) staged = stage(what.batch, outcome, wait);
  if (staged) outcome = staged->outcome;
  observation.stop();
  CUresult result = CUDA_SUCCESS;
  if (staged) {
    result = staged->result;
  } else if (outcome.verdict == multipath::Verdict::kFailed) {
    result = outcome.error;
  } else if (outcome.verdict != multipath::Verdict::kAccelerated) {
    result = native(arguments...);
  } else if (wait == Wait::kYes) {
    // The native copy hurts no graph that is being recorded; this call would.
    const cuda::RelaxedCapture relaxed(*driver());
    result = driver()->cuStreamSynchronize(what.batch.stream);
  }
  if (result != CUDA_SUCCESS) outcome.verdict = multipath::Verdict::kFailed;
  observation.end(hook, size_bytes, is_described ? &what.batch : nullptr, outcome);
  return result;
}

}  // namespace braid::preload
