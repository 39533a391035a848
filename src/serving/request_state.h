// What a scheduling policy sees: every request that is not finished, the room on the GPU, what the
// links can carry by the end of the next step, and the time. And what it answers.
//
// Plain values. Times are microseconds since any one moment; a block is the unit of KV cache.
// SuperInfer sections 4.2.1 (states) and 4.2.3 (blocks, budget).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace braid::serving {

using RequestId = uint64_t;

enum class RequestState : uint8_t {
  kWaiting,  ///< has nothing on the GPU and nothing to load: new, or to be computed again
  kRunning,
  kRotary,   ///< paused, its KV cache is on the host (or still on its way there)
  kLoading,  ///< on its way back, its blocks on the GPU are taken
};

/// Service level objectives of one request.
struct Slo {
  int64_t ttft_us = 5'000'000;  ///< S_F: from arrival to the first token
  int64_t tbt_us = 100'000;     ///< S_B: from one token to the next

  bool operator==(const Slo&) const = default;
};

inline constexpr int64_t kNoToken = std::numeric_limits<int64_t>::min();

struct RequestView {
  RequestId id = 0;
  RequestState state = RequestState::kWaiting;
  uint8_t priority = 0;  ///< of its class; the lowest number is served first
  Slo slo;
  int64_t arrival_us = 0;
  int64_t last_token_us = kNoToken;
  int64_t running_since_us = 0;  ///< running: since when

  uint32_t blocks = 0;  ///< blk(r). Waiting, rotary: what admitting it takes. Running: what it has
  uint32_t growth_blocks = 0;  ///< running: what it takes beyond them in the next step
  uint32_t load_blocks = 0;    ///< what has to come from the host before it runs
  uint32_t freed_blocks = 0;   ///< running: what preempting it gives back; shared blocks stay
  uint32_t save_blocks = 0;    ///< running: what the host has no copy of

  uint32_t context_tokens = 0;    ///< prompt, and what was generated
  uint32_t generated_tokens = 0;  ///< of them
  uint32_t output_tokens = 0;     ///< what it will have generated in the end: for oracles alone
  uint32_t expected_tokens = 0;   ///< the same, as far as past requests tell
  double length_rank = 0;         ///< the same, as a ranking model might: by order only
};

/// What may be moved by the end of the next step, by direction: measured rate x predicted step,
/// less what is under way.
struct TransferBudget {
  uint64_t load_bytes = 0;  ///< host to GPU
  uint64_t save_bytes = 0;  ///< GPU to host
};

struct View {
  int64_t now_us = 0;
  int64_t step_us = 0;  ///< how long the next step is expected to take
  uint32_t total_blocks = 0;
  uint32_t free_blocks = 0;
  /// On the host. A request with more to save than that loses its KV cache when it is preempted.
  uint32_t host_free_blocks = std::numeric_limits<uint32_t>::max();
  uint64_t block_bytes = 1;
  uint32_t block_tokens = 1;                                    ///< tokens that a block holds
  uint32_t max_running = std::numeric_limits<uint32_t>::max();  ///< running and loading
  TransferBudget budget;
  std::span<const RequestView> requests;  ///< in any order
};

/// No request is in both lists. Whoever carries it out takes `preempt` first, then gives the
/// running what they grow by, then takes `admit` in its order and stops at what finds no free
/// blocks: that request stays what it was.
struct Decision {
  std::vector<RequestId> preempt;  ///< running ones
  std::vector<RequestId> admit;    ///< waiting and rotary ones
  uint64_t load_bytes = 0;         ///< what admitting costs
  uint64_t save_bytes = 0;         ///< what preempting costs

  bool operator==(const Decision&) const = default;
};

}  // namespace braid::serving
