// KV caches that rotate between GPUs and host memory: the block table (start at block_table.h), and
// copies that follow it. SuperInfer section 4.3.2, DuplexKV.
//
// A step of the model, as the engine that owns the cache does it:
//
//   report = rotation.poll();          // what has landed, which slots are free again
//   end_use, release, begin_use ...    // what the scheduler has decided
//   rotation.submit(plan, budget);     // blocks leave and come; sealed ones are written through
//   rotation.begin_step();
//   create, reopen, seal ...           // blocks that this step writes
//   (the step's kernels go into the compute stream)
//   rotation.end_step();
//
// Copies down and up stand in two streams of each GPU and run at the same time. Nothing here waits
// for the GPU: what must come after a step, or after another copy, is ordered by events. The
// compute stream waits only for loads that are enqueued whole, from pinned memory
// (Landing::kOrdered).
//
// Failure: a copy that is refused leaves each block where its good bytes are: sealed on the way
// down, host only on the way up; `submit` says so, and it may be tried again. A GPU whose context
// has failed (`poll`) is the end of the whole group's: what the host has is host only, all else is
// lost, and the engine copies nothing any more. No block changes unseen, no slot is used early.
//
// Tensor parallelism: the ranks of one group move the same blocks by one decision; what fails on
// one has failed for all.
//
// Ownership: contexts, caches and compute streams are the caller's and outlive the engine. Threads:
// one at a time. Errors: Status; Refusal for single blocks. Sizes are bytes, of all ranks together.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cuda/driver.h"
#include "kv/block_table.h"
#include "kv/copier.h"
#include "kv/layout.h"
#include "kv/rank.h"

namespace braid::kv {

struct RotationOptions {
  Layout layout;
  BlockTable::Slots slots;         ///< of every rank
  std::vector<RankOptions> ranks;  ///< one for each GPU of the group
  /// What the pools of all ranks may take together; none: what the host has left.
  std::optional<uint64_t> host_limit_bytes = {};
};

/// What is to move between two steps. Order is precedence.
struct Plan {
  /// Blocks without users that leave the GPU: synced ones at once, sealed ones by a copy. Blocks
  /// that are gone from it already are passed over, and so are those that others still use.
  std::span<const BlockId> evict = {};
  /// Blocks that are host only and come back. Those that are not are passed over.
  std::span<const BlockId> load = {};
  Landing landing = Landing::kOrdered;
  bool writes_through = true;  ///< sealed blocks are copied with what is left of the budget
};

/// Bytes that `submit` may put under way, of all ranks together.
struct Budget {
  uint64_t down_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t up_bytes = std::numeric_limits<uint64_t>::max();
};

/// What became of a plan. What is not listed as refused or left over is done, or under way.
struct Submitted {
  uint64_t down_bytes = 0;
  uint64_t up_bytes = 0;
  size_t evictions_left = 0;  ///< sealed ones: no budget
  size_t loads_left = 0;      ///< the last ones of the plan: no budget, or no slot of the GPU
  /// Blocks of the plan whose state did not allow it, or for which there was no slot of the host.
  std::vector<std::pair<BlockId, Refusal>> refused;
  Status failure;  ///< of a copy: its blocks are where they were
};

/// What has happened since the last poll.
struct Report {
  std::vector<BlockId> synced;  ///< both sides are equal; or host only, if it was leaving
  std::vector<BlockId> loaded;
  Status failure;  ///< the group's end: see above
};

class RotationEngine {
 public:
  struct Created {
    BlockId id{};
    Refusal refusal = Refusal::kNone;
    Status
        failure{};  ///< of the driver's, which did not order the compute stream; or the group's end
    bool ok() const { return refusal == Refusal::kNone && failure.ok(); }
  };

  struct Reopened {
    Refusal refusal = Refusal::kNone;
    Status failure{};  ///< of the driver's, as in Created
    bool ok() const { return refusal == Refusal::kNone && failure.ok(); }
  };

  /// Pins the host's pools, of `slots.host` blocks a rank: tens of milliseconds a gigabyte.
  static Result<std::unique_ptr<RotationEngine>> open(const cuda::Driver& driver,
                                                      RotationOptions options,
                                                      std::unique_ptr<Copier> copier);

  const BlockTable& table() const { return table_; }
  const Layout& layout() const { return layout_; }

  /// The table's own; see block_table.h. `create` may take a slot that steps and copies which are
  /// enqueued still use: the compute stream is then ordered behind them.
  Created create();
  Refusal add_reference(BlockId id) { return table_.add_reference(id); }
  Refusal release(BlockId id) { return table_.release(id); }
  Refusal begin_use(BlockId id) { return table_.begin_use(id); }
  Refusal end_use(BlockId id) { return table_.end_use(id); }
  Refusal seal(BlockId id) { return table_.seal(id); }
  /// Also orders the compute stream behind a copy of it that has failed, and may still read it.
  Reopened reopen(BlockId id);
  Refusal drop_host(BlockId id) { return table_.drop_host(id); }
  Refusal lose(BlockId id) { return table_.lose(id); }

  Mark begin_step() { return table_.begin_step(); }
  /// All of the step is in the compute streams. After a failure, say it again: until then nothing
  /// that the step wrote is copied.
  Status end_step();

  /// Never blocks. What fails is in the answer.
  Submitted submit(const Plan& plan, const Budget& budget = {});
  /// Until the next poll. Never blocks.
  const Report& poll();

  /// Until every copy that is under way has ended: for shutting down, and for measuring.
  void wait();
  const Report& drain() {
    wait();
    return poll();
  }

  /// The host's copy of a block, `layout().block_bytes()` long; null if there is none.
  const std::byte* host_block(size_t rank, BlockId id) const;
  uint64_t block_bytes() const { return layout_.block_bytes() * ranks_.size(); }
  size_t rank_count() const { return ranks_.size(); }

 private:
  // Blocks whose copies are one batch on every rank.
  struct Batch {
    Direction direction = Direction::kDown;
    Mark mark = 0;
    Marks after;
    std::vector<BlockId> blocks;
    std::vector<SlotPair> slots;
  };

  RotationEngine(RotationOptions options, std::unique_ptr<Copier> copier);
  Batch new_batch(Direction direction);
  Marks enqueued() const { return {ended_step_, down_mark_, up_mark_}; }
  void evict(const Plan& plan, const Budget& budget, Submitted& submitted);
  void load(const Plan& plan, const Budget& budget, Submitted& submitted);
  void write_through(const Budget& budget, Submitted& submitted);
  Refusal begin_eviction(BlockId id, Batch& batch);
  Refusal add_sync(BlockId id, Batch& batch);
  void enqueue(Batch batch, Urgency urgency, Landing landing, Submitted& submitted);
  void end(const Batch& batch, bool ok);
  Status look(Marks& passed);
  void fail(const Status& status);

  const Layout layout_;
  const std::unique_ptr<Copier> copier_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  BlockTable table_;
  Mark ended_step_ = 0;
  Mark down_mark_ = 0;
  Mark up_mark_ = 0;
  std::deque<Batch> under_way_;
  std::vector<Batch> spare_;  // ended ones, for the room in their lists
  Report report_;
  Status failure_;
};

}  // namespace braid::kv
