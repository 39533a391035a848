// Roster: relays are opened, and opened again when the program has ended their contexts.
#include <algorithm>

#include "cuda/relaxed_capture.h"
#include "cuda/scoped_context.h"
#include "multipath/roster.h"

namespace braid::multipath {

// The primary context of every GPU that may relay; each is then a target as well. A GPU that cannot
// be opened (its memory is full, another process has it alone) is done without.
Result<bool> Roster::open_next() {
  const cuda::RelaxedCapture relaxed(driver_);
  const cuda::ScopedContext scope(driver_);
  const int gpus = relays_.gpu_count();
  while (next_to_open_ < gpus && (relays_.all() & gpu_bit(next_to_open_)) == 0) ++next_to_open_;
  if (next_to_open_ == 2 * gpus) return false;
  const int step = next_to_open_++;
  if (step < gpus) {
    const auto context = retain_relay(step);
    const std::unique_lock lock(mutex_);
    (void)open_relay(step, context);
    return true;
  }
  const std::unique_lock lock(mutex_);
  if (step == gpus)
    if (const Status status = finish_relays(); !status.ok()) return status;
  (void)adopt_primary(step - gpus);  // what fails is in problems_
  return true;
}

// Before there are targets, which know the relays that there are when they are made: those whose
// contexts the program has ended meanwhile are opened again.
Status Roster::finish_relays() {
  reopen_relays();
  const bool is_any_open = std::any_of(relay_endpoints_.begin(), relay_endpoints_.end(),
                                       [](const Endpoint* relay) { return relay != nullptr; });
  return is_any_open ? Status() : first_refusal_;
}

void Roster::begin() {
  const std::unique_lock lock(mutex_);
  if (!watch_.start())
    problems_.emplace_back(
        "the process may not have another thread. If a GPU fails, transfers that it relays do not "
        "end");
  is_opening_ = false;
}

Result<CUcontext> Roster::retain_relay(int gpu) const {
  CUcontext context = nullptr;
  const Status status =
      driver_.check(driver_.cuDevicePrimaryCtxRetain(&context, relays_.device(gpu)),
                    "opening GPU " + std::to_string(gpu) + " as a relay");
  if (!status.ok()) return status;
  return context;
}

bool Roster::open_relay(int gpu, const Result<CUcontext>& context) {
  auto endpoint = context.ok() ? endpoint_for(gpu, context.value(), true) : context.status();
  if (endpoint.ok()) {
    relay_endpoints_[static_cast<size_t>(gpu)] = endpoint.value();
    return true;
  }
  if (context.ok()) refused_.push_back({context.value(), gpu});
  const Status status = note(endpoint.status());
  if (first_refusal_.ok()) first_refusal_ = status;
  return false;
}

// A relay whose context the program has ended is opened anew, as one that it never used.
GpuSet Roster::reopen_relays() {
  GpuSet reopened = 0;
  for (int gpu = 0; gpu < relays_.gpu_count(); ++gpu) {
    if ((gone_relays_ & gpu_bit(gpu)) == 0) continue;
    if (open_relay(gpu, retain_relay(gpu))) reopened |= gpu_bit(gpu);
  }
  gone_relays_ = 0;
  return reopened;
}

void Roster::restore_relays(GpuSet reopened) {
  for (Endpoint* relay : relay_endpoints_) {
    if (relay == nullptr || (reopened & gpu_bit(relay->gpu())) == 0) continue;
    for (const auto& target : targets_)
      if (link(*relay, target->endpoint())) target->restore_relay(*relay);
  }
}

}  // namespace braid::multipath
