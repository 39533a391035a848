#include "multipath/relay_health.h"

namespace braid::multipath {

const char* relay_state_name(RelayState state) {
  switch (state) {
    case RelayState::kOpen: return "open";
    case RelayState::kResting: return "resting";
    case RelayState::kWithoutBuffers: return "without_buffers";
  }
  return "unknown";
}

void RelayHealth::refused(const cuda::Driver& driver, CUresult error, uint64_t now_ns) noexcept
    try {
  last_error_ = error;
  rests_until_ns_ = now_ns + kRestNs;
  if (refusals_.fetch_add(1) == 0 && notify_ != nullptr) notify_(describe(driver).c_str());
} catch (...) {  // no memory for the words
}

std::string RelayHealth::describe(const cuda::Driver& driver) const {
  return "GPU " + std::to_string(gpu_) + " has refused bytes that it was to relay (" +
         driver.describe(last_error_) + "). It rests, and is tried again every 10 s";
}

std::string RelayHealth::problem(const cuda::Driver& driver) const {
  return refusals_ != 0 ? describe(driver) : std::string();
}

void RelayHealth::found_shared(uint64_t now_ns) {
  ++times_shared_;
  shared_until_ns_ = now_ns + kRestNs;
}

void RelayHealth::found_congested(Direction direction, uint64_t now_ns) {
  ++times_congested_;
  congested_[static_cast<size_t>(direction)].start(now_ns);
}

RelayCount RelayHealth::count(bool has_buffers, uint64_t now_ns) const {
  const RelayState state = is_resting(now_ns) ? RelayState::kResting
                           : has_buffers      ? RelayState::kOpen
                                              : RelayState::kWithoutBuffers;
  return {gpu_, state, refusals_, times_shared_, times_congested_};
}

}  // namespace braid::multipath
