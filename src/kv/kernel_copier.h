// Batches over a GPU's own link by braid's pull kernel instead of the driver's batch: the call
// writes a table of the batch's pieces and launches one kernel, whatever the number of blocks. The
// driver's batch costs the caller about a microsecond a block. In exchange a kernel takes some
// multiprocessors of the GPU while it copies.
//
// The kernel mover (multipath/kernel_mover.h) does the work, with the target's own path alone. All
// of a batch is enqueued when `copy` returns. Batches of few or of large copies, and those for
// which no state or table is free, are the driver's.
//
// Threads: one at a time, as the rotation engine that owns it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kv/copier.h"

namespace braid::kv {

class KernelCopier final : public Copier {
 public:
  /// Loads the kernels into each context, and registers the tables there: call it while the
  /// contexts have no work that is held, since the driver waits for their streams.
  static Result<std::unique_ptr<KernelCopier>> open(const cuda::Driver& driver,
                                                    std::span<const CUcontext> contexts);
  /// Call it once no copy is under way, while the contexts live.
  ~KernelCopier() override;

  Status copy(std::span<const library::Copy> copies, CUstream stream, Urgency urgency) override;

  Carried carried() const override { return carried_; }

 private:
  class Link;  // of one context

  explicit KernelCopier(const cuda::Driver& driver);
  Link* find(CUcontext context) const;

  const cuda::Driver& driver_;
  NativeCopier native_;
  std::vector<std::unique_ptr<Link>> links_;
  Carried carried_;
};

}  // namespace braid::kv
