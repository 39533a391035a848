// A rank of a group whose leader is another process: carries out the leader's commands on one GPU
// of this process, and reports. remote_rank.h shows a step of both.
//
// Commands are carried out once, in the order of their numbers. What cannot be carried out as
// numbered (lost, doubled, cut short, another rank's) is refused as a whole, and changes nothing.
// - The driver refuses a copy: the rest goes on, and the report names the batch. Its blocks stay
//   where their good bytes are, on every rank. The step may be launched: it reads slots of the
//   cache, and the leader's caller discards what it computed from blocks that did not come.
// - The driver does not order the compute stream, or the context has failed: the rank is broken. It
//   enqueues nothing any more, and the step must not be launched. The report says so.
//
// All calls but `wait` and closing only enqueue. Threads: one at a time. Ownership: as in
// RotationEngine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "cuda/driver.h"
#include "kv/copier.h"
#include "kv/gpu_rank.h"
#include "kv/rank_messages.h"

namespace braid::kv {

class RankWorker {
 public:
  struct Options {
    Layout layout;  ///< may differ from the leader's in where segments lie, not in their bytes
    BlockTable::Slots slots;
    RankOptions gpu;
    uint32_t rank = 0;  ///< its number in the group
  };
  struct Applied {
    Mark step = 0;              ///< to be launched now; 0: none
    size_t failed_batches = 0;  ///< copies that were refused
  };

  /// Pins the host pool.
  static Result<std::unique_ptr<RankWorker>> open(const cuda::Driver& driver,
                                                  const Options& options,
                                                  std::unique_ptr<Copier> copier);

  Result<Applied> apply(std::span<const std::byte> commands);
  /// Call it when the compute stream has all of the step. After a failure, call it again.
  Status end_step();
  /// What the rank has done so far. Valid until the next call.
  std::span<const std::byte> report();
  /// Waits until the copies under way have ended.
  void wait() { rank_->synchronize(); }
  /// Null for a slot that the pool does not have.
  const std::byte* host_block(Slot slot) const {
    return slot < shape_.host_slots ? rank_->host_block(slot) : nullptr;
  }

 private:
  struct Failed {
    FailedBatch batch;
    uint64_t reported_in;  // the first report that names it; 0: none yet
  };

  RankWorker(const Options& options, std::unique_ptr<Copier> copier, std::unique_ptr<GpuRank> rank);
  Status check(const Commands& commands) const;
  Status check_slots(const CopyBatch& batch) const;
  void forget_failures(uint64_t report_seen);
  void end(const Status& broken);

  const std::unique_ptr<Copier> copier_;
  const std::unique_ptr<GpuRank> rank_;
  const GroupShape shape_;
  RankReport report_;           // the latest
  std::vector<Failed> failed_;  // the leader may not know of them yet
  Mark open_step_ = 0;          // launched, and not ended
  Status broken_;
  std::vector<std::byte> bytes_;
};

}  // namespace braid::kv
