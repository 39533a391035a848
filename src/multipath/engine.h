// The multipath engine: start reading here. See docs/life-of-a-copy.md. Then, in a copy's order:
// submitter.h, planner.h (is it worth it), classify.h (what memory is it), context_registry.h
// (whose context), target.h (which paths), and a mover: copy_engine_mover.h or kernel_mover.h.
// Beside the path lie access.h (access for relays) and staging/stager.h (pageable memory).
//
// One Engine serves a process. `open` does everything that allocates or blocks: contexts on the
// GPUs, peer access, kernels, streams, memory. `submit` allocates nothing, and waits for nothing
// that the driver's own copy would not wait for (docs/architecture.md, "The law"). It enqueues the
// whole transfer in the order of the caller's stream and says kAccelerated. Or it has enqueued
// nothing that moves bytes and says why, and the caller makes the native copy. (kFailed is the
// exception: the driver has refused the gate, and the caller returns its error.) While another
// thread is inside add_context or forget_context, the answer is kNotReady.
//
// Threads: every member may be called from any thread at once. Errors: `open` returns a Status;
// after it, trouble is a Verdict. Source: MMA sections 3.2 to 3.4, as docs/architecture.md maps
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/access.h"
#include "multipath/context_registry.h"
#include "multipath/cost_file.h"
#include "multipath/path_counts.h"
#include "multipath/peer_processes.h"
#include "multipath/planner.h"
#include "multipath/relay_health.h"
#include "multipath/relay_topology.h"
#include "multipath/staging/stager.h"
#include "multipath/submitter.h"
#include "multipath/transfer.h"

namespace braid::multipath {

class Engine {
 public:
  /// Prepares every GPU that may relay, and every GPU that the program has made active. `driver`
  /// must outlive the engine. The calling thread's current context is left as it was. A GPU
  /// that cannot be prepared is done without (`problems`); fails when no relay is left. A server
  /// with nothing to gain (one GPU, no peers) is not a failure: `submit` then says kNoRelay.
  static Result<std::unique_ptr<Engine>> open(const cuda::Driver& driver, const Options& options);

  /// As `open`, but does nothing on a GPU, and lets `notify` tell the user what goes wrong later.
  /// `add_context` may be called from now on. Relays are for `open_next_relay`, one a call, with
  /// the same errors: those of the GPUs that are wanted, by `request_relays` or by a copy that was
  /// kNotReady. False: none of them is left. A step may take seconds. Then `open_targets` lets
  /// those GPUs' copies in. One thread at a time for these two; everything else may be called
  /// beside them, and copies of other GPUs may come later.
  static Result<std::unique_ptr<Engine>> create(const cuda::Driver& driver, const Options& options,
                                                Notify notify = nullptr);
  void request_relays(GpuSet gpus) noexcept { registry_.request_relays(gpus); }
  Result<bool> open_next_relay() {
    return may_relay() ? registry_.open_next_relay() : Result<bool>(false);
  }
  void open_targets() {
    if (may_relay()) registry_.open_targets();
  }
  /// There is something to do for `open_next_relay` and `open_targets`.
  bool has_relay_requests() const noexcept { return may_relay() && registry_.has_relay_requests(); }
  /// Copies of all GPUs that are wanted are let in, and one is; or there is no GPU that may relay.
  bool are_relays_open() const noexcept { return !may_relay() || registry_.are_relays_open(); }

  ~Engine();  ///< waits for transfers in flight, then gives everything back

  /// Makes `context` known: loads the kernels there, and makes it a target, at once or when the
  /// relays are open. Null: every primary context that is active. Call it when the context has just
  /// been made: the driver waits for all of the context's streams to load code, and lets nobody
  /// enqueue anything there meanwhile. Calls for other contexts go on. Cheap when there is nothing
  /// new.
  Status add_context(CUcontext context);
  /// The same of one GPU's primary context, if it is active; braid holds it until it is forgotten.
  Status add_primary(CUdevice device) {
    return may_relay() ? registry_.add_primary(relays_.gpu_of(device)) : Status();
  }
  bool knows_context(CUcontext context) { return registry_.has(context); }

  /// Call before `context` is destroyed or reset, by whomever: braid stops using it, and forgets
  /// what it owned there.
  void forget_context(CUcontext context) { forget(context, ContextRegistry::End::kDestroyed); }

  /// Call before the last hold on a primary context beside braid's is released: as forget_context,
  /// and braid lets go of the context, so that it ends with that release.
  void release_context(CUcontext context) { forget(context, ContextRegistry::End::kReleased); }

  /// Lets the relays of the memory's GPU read and write it, so that its copies take every path:
  /// call it when the program makes a pool, or maps a range for a GPU of its own. The GPUs that may
  /// now; none when nothing was granted, and copies then take the paths they may. Not on a copy's
  /// path: the driver may take its time.
  GpuSet grant(CUmemoryPool pool, int gpu);
  GpuSet grant(CUdeviceptr address, size_t size_bytes);
  /// The pools that the driver makes by itself, one for each GPU.
  std::vector<std::pair<CUmemoryPool, GpuSet>> grant_default_pools();

  /// The program is short of memory on a GPU: the relay there gives its buffers back, if it has
  /// nothing to do. How many bytes. Waits for nobody.
  uint64_t release_buffers(CUdevice device) noexcept { return registry_.release_buffers(device); }
  /// Makes whole again what has been given back, where there is room. False: not all of it. May
  /// take its time; one thread at a time.
  bool restore_buffers() noexcept;

  /// This process's row among those of the host that use braid.
  ProcessRow& row() noexcept { return peers_.row(); }
  /// What in this process waits for braid, a line each; empty: nothing does. No driver call.
  std::string describe_waits() { return registry_.describe_waits(); }

  Outcome submit(const Batch& batch) noexcept { return submitter_.submit(batch); }
  /// What `submit` would say now, and nothing is enqueued. States and channels are not asked
  /// for: kSaturated is not foreseen.
  Outcome forecast(const Batch& batch) noexcept {
    return submitter_.submit(batch, Intent::kForecast);
  }

  /// A linear copy that `submit` declined, of host memory that is not pinned: staged through pinned
  /// memory (staging/stager.h). May wait and, the first time, allocate, as a native pageable copy
  /// may. The answer of the call that asked for the copy; nothing when the copy is native.
  std::optional<Staged> stage(const Batch& linear, bool is_synchronous);

  /// Smaller transfers stay native, whatever else: `submit` need not be asked about them.
  uint64_t threshold_bytes() const { return planner_.threshold_bytes(); }

  /// At most this many paths from now on, the direct one included; 0: no limit. For measuring.
  void limit_paths(int paths) { submitter_.limit_paths(paths); }

  /// Adds what each path has carried, for transfers that have ended; waits up to `wait_ms` for
  /// those in flight, and for other threads. Uses no driver call, so it is safe while the process
  /// exits, and allocates and locks nothing (it only tries), so with `wait_ms` 0 it is safe in a
  /// signal handler; what another thread, or the interrupted one, holds at that moment is then left
  /// out.
  void collect(int wait_ms, PathCounts& counts) noexcept {
    registry_.collect(std::chrono::milliseconds(wait_ms), counts);
  }
  std::vector<PathCount> collect(int wait_ms);

  /// The relays that are open, and how they are; how many. As safe as `collect` without waiting.
  size_t count_relays(std::span<RelayCount> into) noexcept { return registry_.count_relays(into); }

  /// What could not be prepared or has failed since, in words a user can act on: GPUs that do not
  /// relay, contexts whose copies stay native, a cost file that is not used. The rest works.
  std::vector<std::string> problems();

 private:
  Engine(const cuda::Driver& driver, const Options& options, RelayTopology relays,
         const LoadedCosts& loaded, Notify notify);
  void forget(CUcontext context, ContextRegistry::End how);
  bool may_relay() const { return relays_.all() != 0; }  // else there is nothing to gain

  const cuda::Driver& driver_;
  const Options options_;
  const RelayTopology relays_;
  const Planner planner_;
  PeerProcesses peers_;
  ContextRegistry registry_;
  Submitter submitter_;
  staging::Stager stager_;     // its chunks are submitted like other copies
  const Status cost_problem_;  // why a cost file is not used
};

}  // namespace braid::multipath
