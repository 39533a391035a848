// KV caches that rotate between GPUs and host memory: the block table (start at block_table.h), and
// the copies that follow it. SuperInfer section 4.3.2, DuplexKV.
//
// A step of the model, as the engine that owns the cache does it:
//
//   report = rotation.poll();          // copies that have landed; slots become free
//   end_use, release, begin_use ...    // the scheduler's decisions
//   rotation.submit(plan, budget);     // blocks leave and come; sealed ones are written through
//   rotation.begin_step();
//   create, reopen, seal ...           // blocks that this step writes
//   (the step's kernels go into the compute stream)
//   rotation.end_step();
//
// Copies down and up are in two streams of each GPU and run at the same time. No call here waits
// for the GPU: events order work behind a step or behind another copy. The compute stream waits
// only for loads that are enqueued whole, from pinned memory (Landing::kOrdered).
//
// Failure: if a copy is refused, each block stays where its good bytes are: sealed on the way down,
// host only on the way up. `submit` returns the failure, or `poll` if another process had the copy;
// it may be tried again. If a GPU's context fails, `poll` says so, and the whole group ends: blocks
// with a host copy are host only, all others are lost, and the engine copies nothing any more.
// Every change of a block is reported, and no slot is used early.
//
// Tensor parallelism: the ranks of one group move the same blocks by one decision (rank.h). A
// failure on one rank is a failure of all. Ranks may be GPUs of this process, or of others, to
// which the caller carries commands (remote_rank.h). If such a process is gone, so are its host
// copies: all blocks are lost.
//
// Ownership: the caller owns contexts, caches and compute streams, which outlive the engine.
// Threads: one at a time. Errors: Status; Refusal for single blocks. Sizes are bytes, of all ranks
// together.
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
#include "kv/gpu_rank.h"
#include "kv/layout.h"
#include "kv/remote_rank.h"

namespace braid::kv {

struct RotationOptions {
  Layout layout;
  BlockTable::Slots slots;         ///< of every rank
  std::vector<RankOptions> ranks;  ///< the GPUs of this process: ranks 0, 1, ...
  /// What the pools of these ranks may take together; none: what the host has left.
  std::optional<uint64_t> host_limit_bytes = {};
  uint32_t remote_ranks = 0;  ///< in other processes; they come after `ranks`
  /// How long commands may be with a remote rank before a report speaks of them. Not 0, if there
  /// are any.
  uint64_t report_deadline_ms = 0;
};

/// The moves between two steps. Earlier blocks of a list go first.
struct Plan {
  /// Blocks without users that leave the GPU: synced ones at once, sealed ones by a copy. Blocks
  /// that have left already, or that others still use, are skipped.
  std::span<const BlockId> evict = {};
  /// Host only blocks that come back, and blocks that were about to leave and now stay. Those that
  /// are on the GPU need no copy, and the next `poll` reports them as loaded.
  std::span<const BlockId> load = {};
  Landing landing = Landing::kOrdered;
  bool writes_through = true;  ///< sealed blocks are copied with the rest of the budget
};

/// Bytes that `submit` may put under way, of all ranks together.
struct Budget {
  uint64_t down_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t up_bytes = std::numeric_limits<uint64_t>::max();
};

/// The result of a plan. Blocks that are neither refused nor left over are done, or under way.
struct Submitted {
  uint64_t down_bytes = 0;
  uint64_t up_bytes = 0;
  size_t evictions_left = 0;  ///< sealed blocks left because of the budget
  size_t loads_left = 0;      ///< the last ones of the plan, left because of the budget or GPU
                              ///< slots
  /// Blocks of the plan that are in the wrong state, or for which the host has no slot.
  std::vector<std::pair<BlockId, Refusal>> refused;
  /// Of a copy: its blocks stay where they were. BRAID_ERROR_ARGUMENT: the open step has been sent,
  /// and nothing was done.
  Status failure;
};

/// The changes since the last poll.
struct Report {
  std::vector<BlockId> synced;  ///< both sides are equal; or host only, if it was leaving
  /// What a plan was to load and the GPU has: each block once for each such plan, unless it has
  /// been released or evicted since.
  std::vector<BlockId> loaded;
  /// Blocks whose copy another process could not make after all, also those that have ended since:
  /// sealed or host only, as before; or lost, if steps have written them since. What was computed
  /// from a block whose load has failed is wrong.
  std::vector<BlockId> failed;
  std::string cause;  ///< why the first of them failed
  Status failure;     ///< the end of the group: see above
};

class RotationEngine {
 public:
  struct Created {
    BlockId id{};
    Refusal refusal = Refusal::kNone;
    Status failure{};  ///< the driver could not order the compute stream; the open step has been
                       ///< sent; or the group's end
    bool ok() const { return refusal == Refusal::kNone && failure.ok(); }
  };

  struct Reopened {
    Refusal refusal = Refusal::kNone;
    Status failure{};  ///< as in Created
    bool ok() const { return refusal == Refusal::kNone && failure.ok(); }
  };

  /// Pins the host's pools, of `slots.host` blocks a rank: takes tens of milliseconds a gigabyte.
  /// Without `ranks`, `driver` and `copier` are not used.
  static Result<std::unique_ptr<RotationEngine>> open(const cuda::Driver& driver,
                                                      RotationOptions options,
                                                      std::unique_ptr<Copier> copier);

  const BlockTable& table() const { return table_; }
  const Layout& layout() const { return layout_; }

  /// Same as the table's operations; see block_table.h. `create` may take a slot that enqueued
  /// steps and copies still use: it orders the compute stream behind them.
  Created create();
  Refusal add_reference(BlockId id) { return table_.add_reference(id); }
  Refusal release(BlockId id) { return table_.release(id); }
  Refusal begin_use(BlockId id) { return table_.begin_use(id); }
  Refusal end_use(BlockId id) { return table_.end_use(id); }
  Refusal seal(BlockId id) { return table_.seal(id); }
  /// Also orders the compute stream behind a failed copy of the block, which may still read it.
  Reopened reopen(BlockId id);
  Refusal drop_host(BlockId id) { return table_.drop_host(id); }
  Refusal lose(BlockId id) { return table_.lose(id); }

  Mark begin_step() { return table_.begin_step(); }
  /// Call it when all of the step is in the compute streams. After a failure, call it again: until
  /// it succeeds, no block that the step wrote is copied.
  Status end_step();

  /// Never blocks. The answer holds failures.
  Submitted submit(const Plan& plan, const Budget& budget = {});
  /// Valid until the next poll. Never blocks.
  const Report& poll();

  /// For a remote rank: what its worker is to apply, and what the worker has reported. Take a
  /// step's commands between its last `create`, `reopen` or `submit` and `end_step`: in between,
  /// these are refused.
  Result<std::span<const std::byte>> take_commands(size_t rank);
  Status give_report(size_t rank, std::span<const std::byte> bytes);

  /// Waits until every copy of this process has ended: for shutting down, and for measuring.
  void wait();
  const Report& drain() {
    wait();
    return poll();
  }

  /// The host's copy of a block, `layout().block_bytes()` long; null if there is none, or another
  /// process has it.
  const std::byte* host_block(size_t rank, BlockId id) const;
  uint64_t block_bytes() const { return block_bytes_; }
  size_t rank_count() const { return ranks_.size(); }
  Carried carried() const;  ///< by all ranks

 private:
  // Blocks whose copies are one batch on every rank.
  struct Batch {
    CopyBatch copies;
    size_t room_blocks = 0;  // with 0 left, the plan goes on in another one
    std::vector<BlockId> blocks;

    // Always inlined: block_table.h says why answers stay out of memory.
    [[gnu::always_inline]] void add(BlockId id, const BlockTable::Copy& copy) {
      copies.after.join(copy.after);
      copies.slots.push_back({copy.gpu_slot, copy.host_slot});
      blocks.push_back(id);
      --room_blocks;
    }
  };

  // One list of a plan, as far as it has been gone through.
  struct Course {
    std::span<const BlockId> ids;
    Batch batch;
    size_t next = 0;
    bool is_over = false;
  };

  RotationEngine(RotationOptions options, std::unique_ptr<Copier> copier);
  // Fails after the group's end, and while a remote rank has the open step.
  Status check_order() const;
  Batch new_batch(Direction direction);
  Marks enqueued() const { return {ended_step_, down_mark_, up_mark_}; }
  void evict_part(Course& course, const Budget& budget, Submitted& submitted);
  void load_part(Course& course, Landing landing, const Budget& budget, bool are_evicted,
                 Submitted& submitted);
  void write_through(const Budget& budget, Submitted& submitted);
  Refusal begin_eviction(BlockId id, const Budget& budget, Batch& batch, Submitted& submitted);
  Refusal begin_load(BlockId id, Landing landing, Batch& batch, Submitted& submitted);
  Refusal add_sync(BlockId id, Then then, Batch& batch);
  void enqueue(Batch batch, Urgency urgency, Landing landing, Submitted& submitted);
  void begin_next_part(Batch& batch, Landing landing, Submitted& submitted);
  void end_course(Course& course, Landing landing, Submitted& submitted);
  void end(const Batch& batch, bool ok);
  void land(const Marks& passed);
  void report_there();
  void end_failed(size_t rank, const Progress& progress);
  void fail(size_t rank, const Status& status, bool is_host_lost);
  Result<RemoteRank*> remote(size_t rank) const;

  const Layout layout_;
  const uint64_t block_bytes_;  // of all ranks
  const size_t first_part_blocks_;
  const std::unique_ptr<Copier> copier_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<RemoteRank*> remote_;  // the last ones of ranks_
  BlockTable table_;
  Mark ended_step_ = 0;
  Mark down_mark_ = 0;
  Mark up_mark_ = 0;
  std::deque<Batch> under_way_;
  std::vector<BlockId> there_;  // on the GPU when a plan was to load them; not reported yet
  std::vector<Batch> spare_;    // ended batches, reused for the room in their lists
  Report report_;
  Status failure_;
};

}  // namespace braid::kv
