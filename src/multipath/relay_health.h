// Whether a relay may work; no other place decides this. A relay whose driver calls are refused
// rests for a while and is tried again. A relay whose buffers were freed for the program carries
// only shares that need no buffer. Each relay's first refusal is reported; the statistics count
// all.
//
// Threads: any; nothing locks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "cuda/driver.h"
#include "multipath/backoff.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// Tells the user something in one line; null: no message. Any thread may call it.
using Notify = void (*)(const char* message);

enum class RelayState : uint8_t {
  kOpen,
  kResting,         ///< the driver has refused its work
  kWithoutBuffers,  ///< the program needed the memory
};

/// "open", "resting", "without_buffers".
const char* relay_state_name(RelayState state);

/// One relay, for the statistics.
struct RelayCount {
  int gpu = -1;  ///< CUDA ordinal
  RelayState state = RelayState::kOpen;
  uint64_t refusals = 0;   ///< copies of which the driver refused a share there, or part of it
  uint64_t shared = 0;     ///< times that its kernels shared the GPU with another context's
  uint64_t congested = 0;  ///< copies whose share took longer than the whole native copy would
};

class RelayHealth {
 public:
  static constexpr uint64_t kRestNs = 10'000'000'000;

  RelayHealth(int gpu, Notify notify) : gpu_(gpu), notify_(notify) {}

  /// The driver has refused work of the relay's.
  void refused(const cuda::Driver& driver, CUresult error, uint64_t now_ns) noexcept;
  bool is_resting(uint64_t now_ns) const { return now_ns < rests_until_ns_; }

  /// Its kernels share the GPU's time with another context's: they are left out for a while.
  void found_shared(uint64_t now_ns);
  bool is_shared(uint64_t now_ns) const { return now_ns < shared_until_ns_; }

  /// A copy's share was late: the relay's link is not used in that direction for a while.
  void found_congested(Direction direction, uint64_t now_ns);
  bool is_congested(Direction direction, uint64_t now_ns) const {
    return congested_[static_cast<size_t>(direction)].is_active(now_ns);
  }

  /// `has_buffers`: the relay's.
  RelayCount count(bool has_buffers, uint64_t now_ns) const;
  /// The failures so far; empty if there are none.
  std::string problem(const cuda::Driver& driver) const;

 private:
  std::string describe(const cuda::Driver& driver) const;

  const int gpu_;
  const Notify notify_;
  std::atomic<uint64_t> refusals_{0};
  std::atomic<CUresult> last_error_{CUDA_SUCCESS};
  std::atomic<uint64_t> rests_until_ns_{0};
  std::atomic<uint64_t> times_shared_{0};
  std::atomic<uint64_t> shared_until_ns_{0};
  std::array<Backoff, 2> congested_;  // by direction
  std::atomic<uint64_t> times_congested_{0};
};

}  // namespace braid::multipath
