// The path of every intercepted copy. Passing through is the default: a copy is offered to the
// engine, and if the engine declines it, the driver gets it with the program's own arguments.
//
// On a copy's path no driver memory is allocated and nothing blocks, with two exceptions that also
// block natively: a synchronous copy waits for its stream, and a copy of pageable memory for its
// bytes.
#pragma once

#include <optional>

#include "multipath/classify.h"
#include "preload/binding.h"
#include "preload/observe.h"
#include "preload/state.h"
#include "preload/uncancelled_scope.h"

namespace braid::preload {

enum class Wait : bool { kNo, kYes };

/// The program's stream as one handle for all entry points.
inline CUstream legacy(CUstream stream) { return stream == nullptr ? CU_STREAM_LEGACY : stream; }
inline CUstream per_thread(CUstream stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

/// The segment of a copy in this direction.
multipath::Segment segment_of(multipath::Direction direction, CUdeviceptr to, CUdeviceptr from,
                              uint64_t size_bytes);

/// One call of a copy. In this order: `may_gain`; if true, `offer`, unless the copy turns out to be
/// none for braid; `finish` in any case.
class Interception {
 public:
  Interception(HookId hook, Wait wait, uint64_t size_bytes) noexcept
      : hook_(hook), wait_(wait), size_bytes_(size_bytes), function_(real_function(hook)) {}

  /// False if the copy is smaller than `least_bytes`, or the call comes from inside braid.
  bool may_gain(uint64_t least_bytes) noexcept;

  /// Asks the driver for the direction; nothing if the copy is not between host memory and a GPU.
  std::optional<multipath::Direction> find_direction(CUdeviceptr to, CUdeviceptr from) noexcept;

  /// Offers the batch to the engine. The batch takes its stream's priority: this is how programs
  /// mark a copy as urgent. Its segments must outlive the call.
  void offer(const multipath::Batch& batch) noexcept;

  /// There is no room for the batch's segments: the copy is native.
  void give_up() noexcept { outcome_ = multipath::Verdict::kNotReady; }

  /// True if braid carries the copy, and the driver has refused one of its last steps.
  bool has_failed() const noexcept { return outcome_.verdict == multipath::Verdict::kFailed; }

  /// Makes the native copy with these arguments, unless braid carries the copy. Returns the result
  /// of the call.
  template <typename... Arguments>
  CUresult finish(Arguments... arguments) noexcept {
    if (function_ == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
    auto* native = reinterpret_cast<CUresult (*)(Arguments...)>(function_);
    if (is_nested_) return native(arguments...);
    observation_.stop();
    return end(is_carried() ? complete() : native(arguments...));
  }

 private:
  bool is_carried() const {
    return staged_ || outcome_.verdict == multipath::Verdict::kAccelerated ||
           outcome_.verdict == multipath::Verdict::kFailed;
  }
  void stage(multipath::Engine& engine) noexcept;
  CUresult complete() noexcept;
  CUresult end(CUresult result) noexcept;

  const HookId hook_;
  const Wait wait_;
  const uint64_t size_bytes_;
  void* const function_;  // the driver's
  const UncancelledScope uncancelled_;
  const bool is_nested_ = ReentryGuard::is_active();
  const ReentryGuard guard_;
  Observation observation_;
  std::optional<multipath::CopyPointers> pointers_;  // if the driver has been asked
  std::optional<multipath::Batch> batch_;            // the batch that was offered
  multipath::Outcome outcome_ = multipath::Verdict::kBelowThreshold;
  std::optional<multipath::Staged> staged_;
};

}  // namespace braid::preload
