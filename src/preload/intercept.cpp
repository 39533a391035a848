#include "preload/intercept.h"

#include "cuda/relaxed_capture.h"
#include "multipath/staging/stager.h"
#include "preload/helper.h"

namespace braid::preload {
namespace {

using multipath::Batch;
using multipath::Direction;
using multipath::Priority;
using multipath::Segment;
using multipath::Verdict;

Priority priority_of(CUstream stream) {
  if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return Priority::kBulk;
  int priority = 0;
  const bool is_known = driver()->cuStreamGetPriority(stream, &priority) == CUDA_SUCCESS;
  return is_known && priority < 0 ? Priority::kUrgent : Priority::kBulk;
}

// A copy has come that relays would carry: they are opened beside the program.
void open_wanted_relays(const multipath::Engine& engine) noexcept {
  if (engine.has_relay_requests()) open_relays(Opening::kInBackground);
}

}  // namespace

Segment segment_of(Direction direction, CUdeviceptr to, CUdeviceptr from, uint64_t size_bytes) {
  const bool to_device = direction == Direction::kHostToDevice;
  return {reinterpret_cast<void*>(to_device ? from : to), to_device ? to : from, size_bytes};
}

bool Interception::may_gain(uint64_t least_bytes) noexcept {
  if (is_nested_ || size_bytes_ < least_bytes) return false;
  outcome_ = Verdict::kNotLinear;  // until it is offered
  return function_ != nullptr && driver() != nullptr;
}

std::optional<Direction> Interception::find_direction(CUdeviceptr to, CUdeviceptr from) noexcept {
  pointers_ = multipath::query_pointers(*driver(), to, from);
  return pointers_ ? std::optional(pointers_->direction) : std::nullopt;
}

void Interception::offer(const Batch& batch) noexcept {
  batch_ = batch;
  batch_->priority = priority_of(batch.stream);
  batch_->pointers = pointers_ ? &*pointers_ : nullptr;
  outcome_ = Verdict::kNotReady;
  multipath::Engine* open = engine();
  if (open == nullptr) return;
  outcome_ = open->submit(*batch_);
  if (outcome_ == Verdict::kNotReady) open_wanted_relays(*open);
  if (multipath::staging::Stager::may_take(*batch_, outcome_)) stage(*open);
}

// A copy of pageable memory that the engine has declined; it may wait natively.
void Interception::stage(multipath::Engine& engine) noexcept try {
  if (size_bytes_ < staging_bytes()) return;
  if (options().waits_for_relays && !engine.are_relays_open()) open_relays(Opening::kNow);
  staged_ = engine.stage(*batch_, wait_ == Wait::kYes);
  if (staged_) outcome_ = staged_->outcome;
  open_wanted_relays(engine);  // as its chunks have found
} catch (...) {
  staged_.reset();  // what has moved will be moved again
}

// Of a copy that braid carries: the answer of the call.
CUresult Interception::complete() noexcept {
  if (staged_) return staged_->result;
  if (outcome_.verdict == Verdict::kFailed) return outcome_.error;
  if (wait_ == Wait::kNo) return CUDA_SUCCESS;
  // The native copy hurts no graph that is being recorded; this call would.
  const cuda::RelaxedCapture relaxed(*driver());
  return driver()->cuStreamSynchronize(batch_->stream);
}

CUresult Interception::end(CUresult result) noexcept {
  if (result != CUDA_SUCCESS) outcome_.verdict = Verdict::kFailed;
  observation_.end(hook_, size_bytes_, batch_ ? &*batch_ : nullptr, outcome_);
  return result;
}

}  // namespace braid::preload
