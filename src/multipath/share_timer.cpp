#include "multipath/share_timer.h"

#include "base/try.h"
#include "cuda/relaxed_capture.h"

namespace braid::multipath {
namespace {

// A share that is a little late says nothing: starts, clocks that rise and host memory take their
// time. One that stands behind other copies is late by whole copies.
constexpr double kLateByUs = 300;
constexpr double kLateBy = 1.25;

}  // namespace

Status ShareTimer::open() {
  for (CUevent* event : {&begin_, &end_})
    BRAID_TRY(driver_.check(driver_.cuEventCreate(event, CU_EVENT_DEFAULT), "creating an event"));
  return {};
}

void ShareTimer::close() {
  for (const CUevent event : {begin_, end_})
    if (event != nullptr) driver_.cuEventDestroy(event);
}

bool ShareTimer::begin(const Channel& channel, const TimedShare& share) {
  State expected = State::kFree;
  if (!state_.compare_exchange_strong(expected, State::kInUse)) return false;
  share_ = share;
  if (driver_.cuEventRecord(begin_, channel.stream) == CUDA_SUCCESS) return true;
  state_ = State::kFree;
  return false;
}

void ShareTimer::end(const Channel& channel) {
  const bool is_recorded = driver_.cuEventRecord(end_, channel.stream) == CUDA_SUCCESS;
  landed_ = channel.landed;
  landed_at_ = channel.issued + 1;
  state_ = is_recorded ? State::kRuns : State::kFree;
}

std::optional<ShareTimer::Reading> ShareTimer::read(uint64_t sequence) {
  State expected = State::kRuns;
  if (!state_.compare_exchange_strong(expected, State::kInUse)) return std::nullopt;
  if (!Channel::has_reached(landed_, landed_at_)) {
    state_ = State::kRuns;
    return std::nullopt;
  }
  float elapsed_ms = 0;
  bool is_known = share_.sequence == sequence;
  if (is_known) {
    const cuda::RelaxedCapture relaxed(driver_);
    is_known = driver_.cuEventElapsedTime(&elapsed_ms, begin_, end_) == CUDA_SUCCESS;
  }
  const bool is_late = elapsed_ms * 1e3 > kLateBy * share_.native_us + kLateByUs;
  const Reading reading{share_.direction, is_late};
  state_ = State::kFree;
  return is_known ? std::optional(reading) : std::nullopt;
}

}  // namespace braid::multipath
