// One context that transfers go to or come from, with its relays in order of preference, its
// tickets and its lanes. Chooses paths and hands the job to the mover.
//
// Threads: submit and collect may be called at once; one short lock, under which nothing blocks
// (while a relay that failed is made up for, the driver is asked under it).
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "multipath/access.h"
#include "multipath/classify.h"
#include "multipath/copy_engine/mover.h"
#include "multipath/endpoint.h"
#include "multipath/engine.h"
#include "multipath/kernel_mover.h"
#include "multipath/lane.h"
#include "multipath/list_ring.h"
#include "multipath/planner.h"
#include "multipath/rescue.h"
#include "multipath/ticket.h"

namespace braid::multipath {

class Target {
 public:
  /// Allocates tickets and streams, and launches every kernel once with nothing to do, so that no
  /// later copy loads code or maps a peer. `planner`, `endpoint` and `relays` must outlive the
  /// target, and so must `copy_engine`, in which all of them have been prepared; null: kernels
  /// carry everything.
  static Result<std::unique_ptr<Target>> open(const cuda::Driver& driver, const Options& options,
                                              const Planner& planner, Endpoint& endpoint,
                                              std::vector<Endpoint*> relays,
                                              CopyEngineMover* copy_engine);

  const Endpoint& endpoint() const { return endpoint_; }
  bool has_relay();

  /// `size_bytes` of all segments. `path_limit` 0: no limit. Only relays that may touch the memory
  /// take part; kNoRelay when there is none among them.
  Outcome submit(const Batch& batch, uint64_t size_bytes, int path_limit,
                 const Classification& memory);

  /// Adds up the counts of transfers that have ended. False while one is in flight, or while
  /// another thread is inside: never waits, since a process may be exiting from within a copy.
  bool harvest();
  void add_counts(PathCounts& counts);

  /// Transfers to or from this target may have kernels in `endpoint`'s context.
  bool uses(const Endpoint& endpoint);

  /// The relay's context is about to end: no later transfer takes it, and those that have are
  /// orphans (rescue.h).
  void lose_relay(const Endpoint& relay);

  // ---- The watch's (relay_watch.h); times are of system_clock ----

  /// The target's own context has a sticky error. Asks the driver.
  bool has_failed() const { return lanes_->has_failed(); }
  /// How long ago the oldest transfer by kernels that is under way was launched; 0: there is none.
  uint64_t oldest_ns(uint64_t now_ns);
  /// Makes orphans of what these relays had a part in, which have failed, and takes the orphans a
  /// step further. Asks the driver, under the lock if it is free; else does nothing: false.
  bool mend(std::span<const Endpoint* const> failed, uint64_t now_ns);

  /// A GPU whose relay has been dropped relays again, in a new context. Allocates.
  void restore_relay(Endpoint& relay);

  /// The target's own context is gone, and what was in flight with it: own nothing there any more.
  void abandon();

 private:
  Target(const cuda::Driver& driver, const Options& options, const Planner& planner,
         Endpoint& endpoint, std::vector<Endpoint*> relays);
  using Deadline = std::chrono::steady_clock::time_point;
  Status warm_up(Deadline deadline);
  Status run_empty(bool aligned_alike, Deadline deadline);
  /// The streams that the warm-up used have nothing left.
  Status wait_for_warm_up(Deadline deadline) const;
  void keep_warm(const Plan& chosen, uint64_t now_ns);
  bool are_kernels_blocked(uint64_t now_ns);
  Manners manners_of(const Batch& batch) const;
  void read_counts(Ticket& ticket);
  void orphan_users_of(const Endpoint& relay);
  void give_up();
  void release_lanes();

  /// Paths of one transfer, and where their streams are in the lane.
  struct PathChoice {
    std::array<Endpoint*, cuda::kMaxPaths> paths{};
    std::array<int, cuda::kMaxPaths> lane_paths{};
  };
  size_t list_paths(GpuSet allowed, PathChoice& choice) const;
  Plan plan_for(const Batch& batch, uint64_t size_bytes, int paths, bool is_pooled,
                uint64_t now_ns);
  Outcome launch(const Batch& batch, uint64_t size_bytes, const PathChoice& choice, size_t count,
                 uint64_t now_ns);
  bool slice(const Batch& batch, SlicedBytes& bytes);

  struct Count {
    uint64_t slices = 0;
    uint64_t bytes = 0;
  };

  const cuda::Driver& driver_;
  const Options options_;
  const Planner& planner_;
  Endpoint& endpoint_;
  CopyEngineMover* copy_engine_ = nullptr;
  std::vector<Endpoint*> relays_;  // in lane order; a dropped one is null
  uint32_t slot_;                  // of transfers of this GPU on its relays' boards
  std::mutex mutex_;
  uint64_t warm_until_ns_ = 0;  // for the transfers that have been asked for, carried or not
  std::unique_ptr<TicketPool> tickets_;
  std::unique_ptr<ListRing> lists_;
  std::unique_ptr<LaneSet> lanes_;
  std::unique_ptr<Rescue> rescue_;
  // By direction, then by path in lane order.
  std::array<std::array<Count, cuda::kMaxPaths>, 2> counts_{};
  std::array<int, cuda::kMaxPaths> via_{};  // GPU by path in lane order
};

}  // namespace braid::multipath
