// The input of a scheduling policy: every unfinished request, the room on the GPU, the bytes that
// the links can carry by the end of the next step, and the time. And its output, a Decision.
//
// Plain values. Times are microseconds since any fixed moment; a block is the unit of KV cache.
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

  uint32_t blocks = 0;  ///< blk(r). Waiting, rotary: what admitting takes. Running: its blocks
  uint32_t growth_blocks = 0;  ///< running: further blocks that the next step needs
  uint32_t load_blocks = 0;    ///< blocks to come from the host before it runs
  uint32_t freed_blocks = 0;   ///< running: blocks that preempting frees; shared blocks stay
  uint32_t save_blocks = 0;    ///< running: blocks of which the host has no copy

  uint32_t context_tokens = 0;    ///< prompt and generated tokens
  uint32_t generated_tokens = 0;  ///< the generated part of context_tokens
  uint32_t output_tokens = 0;     ///< the final number of generated tokens: for oracles alone
  uint32_t expected_tokens = 0;   ///< the same, estimated from past requests
  double length_rank = 0;         ///< the same as a rank only, as a ranking model might give it
};

/// The bytes that may be moved by the end of the next step, by direction: measured rate x predicted
/// step, minus the bytes under way.
struct TransferBudget {
  uint64_t load_bytes = 0;  ///< host to GPU
  uint64_t save_bytes = 0;  ///< GPU to host
};

struct View {
  int64_t now_us = 0;
  int64_t step_us = 0;  ///< how long the next step is expected to take
  uint32_t total_blocks = 0;
  uint32_t free_blocks = 0;
  /// Free blocks on the host. A preempted request with more blocks to save loses its KV cache.
  uint32_t host_free_blocks = std::numeric_limits<uint32_t>::max();
  uint64_t block_bytes = 1;
  uint32_t block_tokens = 1;                                    ///< tokens that a block holds
  uint32_t max_running = std::numeric_limits<uint32_t>::max();  ///< running and loading
  TransferBudget budget;
  std::span<const RequestView> requests;  ///< in any order
};

/// No request is in both lists. The engine takes `preempt` first, then gives the running requests
/// the blocks they grow by, then takes `admit` in its order. It stops at a request that finds too
/// few free blocks; that request keeps its state.
struct Decision {
  std::vector<RequestId> preempt;  ///< running ones
  std::vector<RequestId> admit;    ///< waiting and rotary ones
  uint64_t load_bytes = 0;         ///< bytes to load for the admitted
  uint64_t save_bytes = 0;         ///< bytes to save for the preempted

  bool operator==(const Decision&) const = default;
};

}  // namespace braid::serving
