// One GPU of a tensor-parallel group: its cache, its share of the host's memory, two streams for
// copies (one a direction), and events that say how far these and its compute stream have come.
//
// All that is done here is enqueued; nothing waits but closing. Errors are Status; a driver that
// reports an error of earlier work has lost the context: `poll` says so, for good.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/driver.h"
#include "kv/copier.h"
#include "kv/fences.h"
#include "kv/host_pool.h"
#include "kv/layout.h"
#include "kv/slot_pool.h"

namespace braid::kv {

enum class Direction { kDown, kUp };

/// What the caller gives of each GPU. All is the caller's, and outlives the engine.
struct RankOptions {
  CUcontext context = nullptr;
  CUdeviceptr cache = 0;       ///< as the layout says
  CUstream compute = nullptr;  ///< the steps' stream; not a legacy default stream
};

/// The two slots of a block that is copied.
struct SlotPair {
  Slot gpu = 0;
  Slot host = 0;
};

class Rank {
 public:
  /// Whether every segment of all its slots lies in memory that the driver knows. What fails names
  /// the segment and its bytes.
  static Status check_cache(const cuda::Driver& driver, const RankOptions& options,
                            const Layout& layout, uint32_t gpu_slots);
  static Result<std::unique_ptr<Rank>> open(const cuda::Driver& driver, const RankOptions& options,
                                            const Layout& layout, uint32_t host_slots);
  ~Rank();  ///< waits for its own two streams
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// The compute stream has all of the step.
  Status record_step(Mark step) { return record(steps_, options_.compute, step); }
  /// Puts the blocks of batch `mark` into the direction's stream, behind `after`. The mark passes
  /// also if that fails, once what was put there has ended.
  Status copy(Direction direction, Mark mark, const Marks& after, std::span<const SlotPair> blocks,
              Copier& copier, Urgency urgency);
  /// What the compute stream gets from now on comes behind `after`.
  Status order_compute(const Marks& after) {
    return order(options_.compute, {.down = after.down, .up = after.up});
  }

  /// Until what is in its two streams has ended.
  void synchronize();

  /// How far the GPU has come. Not ok: its context has failed.
  Status poll(Marks& passed);

  std::byte* host_block(Slot slot) const {
    return host_->data() + layout_.host_stride_bytes() * slot;
  }

 private:
  Rank(const cuda::Driver& driver, const RankOptions& options, const Layout& layout)
      : driver_(driver), options_(options), layout_(layout) {}
  Status prepare(uint32_t host_slots);
  // As few copies as there are ranges: blocks beside each other on both sides are one.
  void list_copies(Direction direction, std::span<const SlotPair> blocks);
  Status order(CUstream stream, const Marks& after);
  Status order(CUstream stream, const Fences<CUevent>& fences, Mark mark);
  Status record(Fences<CUevent>& fences, CUstream stream, Mark mark);
  Result<CUevent> take_event();
  CUstream stream_of(Direction direction) const {
    return direction == Direction::kDown ? down_ : up_;
  }

  const cuda::Driver& driver_;
  const RankOptions options_;
  const Layout layout_;
  std::unique_ptr<HostPool> host_;
  CUstream down_ = nullptr;
  CUstream up_ = nullptr;
  Fences<CUevent> steps_;
  Fences<CUevent> downs_;
  Fences<CUevent> ups_;
  Mark down_mark_ = 0;  // the latest batch of each direction, recorded or not
  Mark up_mark_ = 0;
  std::vector<CUevent> events_;  // that nothing waits for
  std::vector<library::Copy> copies_;
};

}  // namespace braid::kv
