// Observes the copies: the cost and outcome of each, for the statistics and the log. If neither is
// enabled, a copy pays one load and one branch that always goes the same way.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/options.h"
#include "multipath/transfer.h"
#include "preload/statistics.h"

namespace braid::preload {

/// From now on copies are observed, if `options` ask for it. Call it once in a process.
void start_observing(const Options& options);

/// One intercepted copy, from its constructor to stop(). The driver's own work (the native copy, or
/// waiting for the stream) follows stop(). Call end() when its result is known.
class Observation {
 public:
  Observation() noexcept
      : is_on_(is_observing_.load(std::memory_order_relaxed)),
        begin_ns_(is_on_ ? system_clock().now_ns() : 0) {}

  void stop() noexcept {
    if (is_on_) [[unlikely]]
      cost_ns_ = system_clock().now_ns() - begin_ns_;
  }

  /// `batch` is null if the copy was not examined, or is not between host memory and a GPU.
  void end(HookId hook, uint64_t size_bytes, const multipath::Batch* batch,
           const multipath::Outcome& outcome) const noexcept {
    if (is_on_) [[unlikely]]
      record(hook, size_bytes, batch, outcome, cost_ns_);
  }

  static void record(EntryPoint entry_point, uint64_t size_bytes, const multipath::Batch* batch,
                     const multipath::Outcome& outcome, uint64_t cost_ns) noexcept;

 private:
  friend void start_observing(const Options& options);

  static std::atomic<bool> is_observing_;

  bool is_on_;
  uint64_t begin_ns_;
  uint64_t cost_ns_ = 0;
};

}  // namespace braid::preload
