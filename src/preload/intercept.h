// What every intercepted copy goes through. Passing through is the default: a copy is offered to
// the engine, and whatever the engine does not take goes to the driver with the program's own
// arguments.
//
// On a copy's path nothing allocates driver memory and nothing blocks, except that a synchronous
// copy waits for its stream, and a copy of pageable memory for its bytes, as they do natively.
#pragma once

#include <optional>

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

/// The piece of memory of a copy that goes this way.
multipath::Segment segment_of(multipath::Direction direction, CUdeviceptr to, CUdeviceptr from,
                              uint64_t size_bytes);

/// One call of a copy. In this order: `may_gain`; if so, `offer`, unless the copy turns out to be
/// nothing for braid; `finish` in any case.
class Interception {
 public:
  Interception(HookId hook, Wait wait, uint64_t size_bytes) noexcept
      : hook_(hook), wait_(wait), size_bytes_(size_bytes), function_(real_function(hook)) {}

  /// False: smaller than `least_bytes`, or the call comes from inside braid.
  bool may_gain(uint64_t least_bytes) noexcept;

  /// Asks the driver which way the copy goes; nothing when it is not between host memory and a GPU.
  std::optional<multipath::Direction> find_direction(CUdeviceptr to, CUdeviceptr from) noexcept;

  /// The priority of a batch's stream becomes the batch's: so programs say that a copy is urgent.
  /// Its segments outlive the call.
  void offer(const multipath::Batch& batch) noexcept;

  /// There is no room to list the batch's segments in: the copy is native.
  void give_up() noexcept { outcome_ = multipath::Verdict::kNotReady; }

  /// Makes the native copy, with these arguments, unless braid carries the copy. What the call
  /// returns.
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
  const bool is_nested_ = ReentryGuard::is_active();
  const ReentryGuard guard_;
  Observation observation_;
  std::optional<multipath::CopyPointers> pointers_;  // if the driver has been asked
  std::optional<multipath::Batch> batch_;            // that has been offered
  multipath::Outcome outcome_ = multipath::Verdict::kBelowThreshold;
  std::optional<multipath::Staged> staged_;
};

}  // namespace braid::preload
