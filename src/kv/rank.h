// One rank of a tensor-parallel group, as the rotation engine sees it. Either a GPU of this process
// (gpu_rank.h), or one of another process, to which commands are sent (remote_rank.h). The engine
// makes every decision, and all ranks carry it out; what fails on one has failed on all.
//
// Nothing here waits for a GPU, except `synchronize`. Errors are Status. Threads: one at a time.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "kv/copier.h"
#include "kv/marks.h"
#include "kv/slot_pool.h"

namespace braid::kv {

enum class Direction : uint8_t { kDown, kUp };

/// The two slots of a block that is copied.
struct SlotPair {
  Slot gpu = 0;
  Slot host = 0;
  bool operator==(const SlotPair&) const = default;
};

/// Copies in one direction, the same on every rank.
struct CopyBatch {
  Direction direction = Direction::kDown;
  Urgency urgency = Urgency::kUrgent;
  Mark mark = 0;  ///< of this direction; marks ascend
  Marks after{};  ///< the copies come behind these
  std::vector<SlotPair> slots{};

  bool operator==(const CopyBatch&) const = default;
};

/// A batch that a rank could not enqueue whole.
struct FailedBatch {
  Direction direction = Direction::kDown;
  Mark mark = 0;
  std::string cause{};
  bool operator==(const FailedBatch&) const = default;
};

/// What a rank tells when it is polled.
struct Progress {
  Marks passed{};
  /// Batches that `copy` took, and that failed later; a rank may name one again.
  std::vector<FailedBatch> failed{};
  bool is_host_lost = false;  ///< of a rank that has failed: its host copies are gone, too
};

class Rank {
 public:
  virtual ~Rank() = default;

  /// Enqueues a batch. If that fails, here or later, its mark still passes, once those of its
  /// copies that were enqueued have ended.
  virtual Status copy(const CopyBatch& batch) = 0;
  /// Orders all later work of the compute stream behind `after`, except for its `step`.
  virtual Status order_compute(const Marks& after) = 0;
  /// Call it when the compute stream has all of the step, or will have it before anything that is
  /// asked from now on.
  virtual Status record_step(Mark step) = 0;
  /// Tells how far the rank has come. Fails if the rank has failed.
  virtual Status poll(Progress& progress) = 0;
  /// Waits until copies under way have ended, if they are this process's.
  virtual void synchronize() = 0;
  /// The host copy in a slot; null if another process has it.
  virtual const std::byte* host_block(Slot slot) const = 0;
};

}  // namespace braid::kv
