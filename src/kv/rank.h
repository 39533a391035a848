// One GPU of a tensor-parallel group: its cache, its share of the host's memory, two streams for
// copies (one a direction), and events that tell the progress of these and of the compute stream.
//
// All work here is enqueued; only closing waits. Errors are Status. If the driver reports an error
// of earlier work, the context is lost: `poll` says so from then on.
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

/// The caller's parts of each GPU. The caller owns them, and they outlive the engine.
struct RankOptions {
  CUcontext context = nullptr;
  CUdeviceptr cache = 0;       ///< as the layout describes it
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

  /// Call it when the compute stream has all of the step.
  Status record_step(Mark step) { return record(steps_, options_.compute, step); }
  /// Puts the blocks of batch `mark` into the direction's stream, behind `after`. If that fails,
  /// the mark still passes, once the copies that were enqueued have ended.
  Status copy(Direction direction, Mark mark, const Marks& after, std::span<const SlotPair> blocks,
              Copier& copier, Urgency urgency);
  /// Orders all later work of the compute stream behind `after`.
  Status order_compute(const Marks& after) {
    return order(options_.compute, {.down = after.down, .up = after.up});
  }

  /// Waits until the work in its two streams has ended.
  void synchronize();

  /// Tells how far the GPU has come. Fails if its context has failed.
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
  std::vector<CUevent> events_;  // spare events
  std::vector<library::Copy> copies_;
};

}  // namespace braid::kv
