// The protocol that both pull kernels follow: how one thread block takes slices, says that they
// have landed, yields and leaves. Called by one thread of the block.
//
// Both memory round trips of a slice are off its critical path (measured on 4xH200, 64 KB slices:
// 94 GB/s with them on it): the next slice is taken, and the yield word read, while the last one is
// still moving; and slices are reported together, when the block stops, since only the full count
// opens the gate.
#pragma once

#include "cuda/kernels/pull.h"

namespace braid::cuda {

/// How long a relay that yields sleeps between two looks.
inline constexpr unsigned kYieldPollNs = 2000;

enum class Take { kSlice, kYield, kOver };

class PullProtocol {
 public:
  __device__ explicit PullProtocol(const PullArgs& args)
      : args_(args),
        counters_(reinterpret_cast<TicketCounters*>(args.counters)),
        busy_(reinterpret_cast<uint32_t*>(args.busy)),
        yields_(args.path != 0 && args.yields != 0) {}

  __device__ void enter() {
    if (args_.path == 0) atomicAdd(busy_, 1u);
    sample_busy();
  }

  /// kYield: this relay's own GPU has direct work; land what has been moved, then `rest`, then ask
  /// again. A slice that is held already is moved first: nobody else can.
  __device__ Take take(Slice& slice) {
    if (!holds_) {
      if (was_busy_) return is_exhausted() ? Take::kOver : Take::kYield;
      hold_next();
    }
    if (held_ >= args_.slice_count) return Take::kOver;
    slice = slice_bounds(args_, held_);
    holds_ = false;
    if (!was_busy_) hold_next();
    sample_busy();
    ++unreported_;
    short_bytes_ += args_.slice_bytes - static_cast<uint32_t>(slice.size_bytes);
    return Take::kSlice;
  }

  __device__ void rest() {
    __nanosleep(kYieldPollNs);
    sample_busy();
  }

  /// Every byte of every slice taken so far has been written, by threads that the caller has
  /// synchronized with. The fence makes them visible to the whole system before the count says so.
  __device__ void land() {
    if (unreported_ == 0) return;
    __threadfence_system();
    atomicAdd_system(&counters_->done, unreported_);
    moved_ += unreported_;
    unreported_ = 0;
  }

  /// The last block of all paths resets the ticket and tells the host that it is free.
  __device__ void leave() {
    if (args_.path == 0) atomicSub(busy_, 1u);
    if (moved_ != 0) atomicAdd_system(&counters_->slices[args_.path], moved_);
    if (short_bytes_ != 0) atomicAdd_system(&counters_->short_bytes[args_.path], short_bytes_);
    __threadfence_system();
    if (atomicAdd_system(&counters_->left, 1u) + 1 == args_.total_blocks) close_ticket();
  }

 private:
  __device__ void hold_next() {
    held_ = atomicAdd_system(&counters_->next, 1u);
    holds_ = true;
  }

  __device__ void sample_busy() {
    if (yields_) was_busy_ = *static_cast<volatile uint32_t*>(busy_);
  }

  __device__ bool is_exhausted() const {
    return *static_cast<volatile uint32_t*>(&counters_->next) >= args_.slice_count;
  }

  __device__ void close_ticket() {
    __threadfence_system();
    auto* report = reinterpret_cast<volatile TicketReport*>(args_.report);
    volatile TicketCounters* counters = counters_;
    for (uint32_t path = 0; path < args_.path_count; ++path) {
      report->slices[path] = counters->slices[path];
      report->short_bytes[path] = counters->short_bytes[path];
      counters->slices[path] = 0;
      counters->short_bytes[path] = 0;
    }
    counters->next = 0;
    counters->left = 0;
    __threadfence_system();
    report->generation = args_.generation;
  }

  const PullArgs& args_;
  TicketCounters* counters_;
  uint32_t* busy_;
  bool yields_;
  bool holds_ = false;  // a slice number has been taken and not yet given out
  uint32_t held_ = 0;
  uint32_t was_busy_ = 0;    // the yield word, as last sampled
  uint32_t unreported_ = 0;  // slices given out since the last land()
  uint32_t moved_ = 0;       // slices landed
  uint32_t short_bytes_ = 0;
};

}  // namespace braid::cuda
