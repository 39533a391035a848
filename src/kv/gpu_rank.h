// A rank whose GPU belongs to this process: its cache, its share of the host's memory, two streams
// for copies (one a direction), and events that tell the progress of these and of the compute
// stream.
//
// All work here is enqueued; only `synchronize` and closing wait. Errors are Status. If the driver
// reports an error of earlier work, the context is lost: `poll` says so from then on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cuda/driver.h"
#include "kv/block_table.h"
#include "kv/copier.h"
#include "kv/fences.h"
#include "kv/host_pool.h"
#include "kv/layout.h"
#include "kv/rank.h"

namespace braid::kv {

/// The caller's parts of each GPU. The caller owns them, and they outlive the rank.
struct RankOptions {
  CUcontext context = nullptr;
  CUdeviceptr cache = 0;       ///< as the layout describes it
  CUstream compute = nullptr;  ///< the steps' stream; not a legacy default stream
};

class GpuRank final : public Rank {
 public:
  struct Options {
    const Layout& layout;
    BlockTable::Slots slots;
    std::span<const RankOptions> gpus;
    /// What the pools of all these ranks may take together; none: what the host has left.
    std::optional<uint64_t> host_limit_bytes;
  };

  /// The ranks of one process. Pins their host pools once everything else has been checked: slots,
  /// streams, the host's free memory, and that every segment of each cache lies in memory that the
  /// driver knows. `copier` outlives them.
  static Result<std::vector<std::unique_ptr<GpuRank>>> open(const cuda::Driver& driver,
                                                            const Options& options, Copier& copier);
  ~GpuRank() override;  ///< waits for its own two streams, and to unpin, for all of the context's
  GpuRank(const GpuRank&) = delete;
  GpuRank& operator=(const GpuRank&) = delete;

  /// A failure is told here, and not again by `poll`.
  Status copy(const CopyBatch& batch) override;
  Status order_compute(const Marks& after) override {
    return order(options_.compute, {.down = after.down, .up = after.up});
  }
  Status record_step(Mark step) override { return record(steps_, step); }
  Status poll(Progress& progress) override;
  void synchronize() override;
  const std::byte* host_block(Slot slot) const override {
    return host_->data() + layout_.host_stride_bytes() * slot;
  }

 private:
  // A stream, and how far it has come.
  struct Line {
    CUstream stream = nullptr;
    Mark latest = 0;  // the latest batch of copies, also one that no event is behind yet
    Fences<CUevent> fences{};
  };

  GpuRank(const cuda::Driver& driver, const RankOptions& options, const Layout& layout,
          Copier& copier)
      : driver_(driver), options_(options), layout_(layout), copier_(copier) {
    steps_.stream = options.compute;
  }
  Status prepare(uint32_t host_slots);
  // As few copies as there are ranges: blocks beside each other on both sides are one.
  void list_copies(const CopyBatch& batch);
  Status order(CUstream stream, const Marks& after);
  Status order(CUstream stream, Line& behind, Mark mark);
  Status record(Line& line, Mark mark);
  // If the driver has refused the event behind the latest batch: puts one there now.
  Status record_latest(Line& line);
  Result<CUevent> take_event();

  const cuda::Driver& driver_;
  const RankOptions options_;
  const Layout layout_;
  Copier& copier_;
  std::unique_ptr<HostPool> host_;
  Line steps_;  // the caller's stream
  Line down_;
  Line up_;
  std::vector<CUevent> events_;  // spare events
  std::vector<library::Copy> copies_;
};

}  // namespace braid::kv
