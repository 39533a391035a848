// One context of the program that is the source or destination of transfers, with its relays in
// order of preference, and its transfers. Chooses paths and hands the transfer to a mover. In the
// context it owns only the kernels' code: no stream, no event, no memory.
//
// Threads: submit and collect may be called at once. One short lock; no driver call is made under
// it, so a copy waits only where the driver's own copy would wait.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "multipath/access.h"
#include "multipath/classify.h"
#include "multipath/copy_engine_mover.h"
#include "multipath/kernel_mover.h"
#include "multipath/link_contention.h"
#include "multipath/path_counts.h"
#include "multipath/planner.h"
#include "multipath/relay.h"
#include "multipath/spare_memory.h"
#include "multipath/transfer_memory.h"
#include "multipath/transfer_state.h"

namespace braid::multipath {

/// A context of the program, and the code loaded there.
struct ProgramContext {
  CUcontext context = nullptr;
  CUdevice device = 0;
  int gpu = -1;         ///< CUDA ordinal
  GpuSet near = 0;      ///< GPUs of the same socket
  PullKernels kernels;  ///< none: batches are native there
};

enum class Intent : bool {
  kCopy,
  kForecast,  ///< only predicts the outcome of the copy; nothing is enqueued or taken
};

class Target {
 public:
  /// Allocates counters on the GPU and host memory, with no call in the program's context.
  /// `planner`, `contention`, `spare` and `relays` must outlive the target.
  static Result<std::unique_ptr<Target>> open(const cuda::Driver& driver, const Options& options,
                                              const Planner& planner, LinkContention& contention,
                                              SpareMemory& spare, const ProgramContext& where,
                                              std::vector<Relay*> relays);
  ~Target();

  /// `size_bytes` of all segments. `path_limit` 0: no limit. Only relays that may touch the memory
  /// take part; kNoRelay when there is none among them.
  Outcome submit(const Batch& batch, uint64_t size_bytes, int path_limit,
                 const Classification& memory, Intent intent);

  /// The paths of a copy of plain memory by relays that are awake: the plan that `submit` would
  /// make now. No driver call.
  std::vector<CopyPath> paths_of(Direction direction, uint64_t size_bytes, int path_limit);

  /// Adds up the counts of transfers that have ended. False while one is in flight, or while
  /// another thread is inside: it never waits, since a process may be exiting from within a copy.
  bool collect_finished();
  void add_counts(PathCounts& counts);

  /// A line for each transfer under way (waits.h). False: another thread is inside.
  bool describe_waits(std::string& lines);

  /// Frees everything; no transfer is under way. `context_lives`: also the objects in the context.
  void close(bool context_lives);
  /// The context ends while transfers may be under way: their words stay mapped.
  void abandon();

 private:
  void free_memory();
  void leave_memory();
  struct Submission;  // the variables of one submit

  Target(const cuda::Driver& driver, const Options& options, const Planner& planner,
         LinkContention& contention, SpareMemory& spare, const ProgramContext& where,
         std::vector<Relay*> relays);
  void mark_warm(const Plan& chosen, uint64_t now_ns);
  bool are_kernels_blocked(uint64_t now_ns);
  YieldPolicy yield_policy_of(const Batch& batch) const;
  void read_counts(TransferState& state);
  size_t list_relays(Submission& submission, int path_limit, Mover mover);
  void record_copy(const Submission& submission);
  double native_us(const Submission& submission) const;
  int far_among(std::span<Relay* const> relays) const;
  Plan plan_for(const Submission& submission, std::span<Relay* const> relays, Mover mover);
  CopySplitRequest split_request(const Submission& submission,
                                 std::span<Relay* const> relays) const;
  Outcome copy_by_engines(Submission& submission);
  Outcome copy_by_kernels(Submission& submission);
  bool acquire(Submission& submission, const ChannelRequest& request);
  Outcome conclude(Submission& submission, uint64_t slice_bytes, const Enqueued& moved);
  void release(Submission& submission);
  uint64_t own_bytes_of(const Submission& submission) const;
  bool slice(const Batch& batch, TransferState& state, uint64_t skip_bytes);

  struct Count {
    uint64_t slices = 0;
    uint64_t bytes = 0;
    void add(uint64_t slice_bytes) {
      ++slices;
      bytes += slice_bytes;
    }
  };
  using Counts = std::array<Count, kMostGpus>;  // by GPU
  Count& count_of(Mover mover, Direction direction, int gpu);

  const cuda::Driver& driver_;
  const Options options_;
  const Planner& planner_;
  LinkContention& contention_;
  SpareMemory& spare_;
  const ProgramContext where_;
  std::vector<Relay*> relays_;
  uint32_t slot_;                           // of transfers of this GPU in its relays' LinkOccupancy
  std::atomic<uint64_t> warm_until_ns_{0};  // for the transfers submitted so far
  std::mutex mutex_;                        // guards the members below
  TransferMemory memory_;
  std::array<std::array<Counts, 2>, 2> counts_{};  // by mover (kernels first), then direction
};

}  // namespace braid::multipath
