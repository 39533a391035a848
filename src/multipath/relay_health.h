// Whether a relay may work: the one place that knows it. A relay whose driver calls are refused
// rests for a while and is tried again; one whose buffers have been given back to the program
// carries only what needs none. Each relay's first refusal is said; the statistics count them all.
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

/// Tells the user something in one line; null: nobody is told. Any thread may call it.
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
  uint64_t refusals = 0;  ///< copies whose share, or part of it, the driver refused there
  uint64_t shared = 0;    ///< times that its kernels found another context's on the GPU
  uint64_t congested =
      0;  ///< copies whose share came later than the whole copy would have natively
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

  /// A copy's share was late: the relay's link is left alone in that direction for a while.
  void found_congested(Direction direction, uint64_t now_ns);
  bool is_congested(Direction direction, uint64_t now_ns) const {
    return congested_[static_cast<size_t>(direction)].is_active(now_ns);
  }

  /// `has_buffers`: the relay's.
  RelayCount count(bool has_buffers, uint64_t now_ns) const;
  /// What went wrong so far; empty: nothing.
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
