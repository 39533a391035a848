// A serving engine in small: requests that do not all fit on the GPU take turns there. Those that
// wait have their blocks moved to host memory and back (rotation), or thrown away and computed
// again.
#pragma once

#include <braid/kv.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "decoder.h"
#include "gpu.h"

namespace rotate {

struct Load {
  uint32_t layers = 16;
  uint32_t requests = 32;
  uint32_t prompt_tokens = 192;
  uint32_t output_tokens = 64;
  uint32_t gpu_slots = 128;
  uint32_t turn_steps = 8;  ///< a request that others wait for runs so long
};

struct Served {
  std::vector<std::vector<uint32_t>> tokens;  ///< prompt and output of each request
  uint64_t steps = 0;
  uint64_t computed_tokens = 0;  ///< with those that were computed again
  uint64_t down_bytes = 0;
  uint64_t up_bytes = 0;
  uint64_t several_links_bytes = 0;  ///< of them, those that went over more than the GPU's own
  double seconds = 0;
};

class Server {
 public:
  enum class Preemption { kRotates, kRecomputes };

  /// `engine` null: copies go over the GPU's own link.
  Server(Gpu& gpu, const Load& load, Preemption preemption, braid::Engine* engine);
  ~Server();

  Served serve();

 private:
  using Block = braid::BlockNumber;
  struct Request {
    uint32_t seed = 0;
    uint32_t* tokens = nullptr;  // pinned: kTokensMost + 1
    uint32_t* slots = nullptr;   // pinned: of each block
    uint32_t token_count = 0;    // known ones
    uint32_t cached = 0;         // whose K and V are in blocks
    std::vector<Block> blocks;
    bool runs = false;
    uint32_t ran_steps = 0;  // in this turn

    uint32_t blocks_needed() const { return (token_count + kBlockTokens - 1) / kBlockTokens; }
    bool is_done(const Load& load) const {
      return token_count >= load.prompt_tokens + load.output_tokens;
    }
  };

  Request new_request(uint32_t number);
  void schedule();
  void preempt(Request& request);
  void move(const std::vector<Block>& load);
  void resume(Request& request);
  void reopen(Block block);
  bool grow(Request& request);
  void step();
  void finish(Request& request);
  /// Slots that a request may have: nobody's, and those that the next plan leaves.
  uint32_t slots_left() const;

  braid::Rotation& rotation() { return rotation_.front(); }

  Gpu& gpu_;
  const Load load_;
  const Preemption preemption_;
  uint64_t block_bytes_ = 0;
  CUdeviceptr cache_ = 0;
  std::vector<braid::Rotation> rotation_;  // one, once it is open
  std::vector<Request> requests_;
  std::deque<Request*> waiting_;  // the next one first
  std::vector<Block> evict_;      // by the next plan
  RequestStep* steps_ = nullptr;  // pinned
  Served served_;
};

}  // namespace rotate
