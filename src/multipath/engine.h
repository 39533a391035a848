// The multipath engine: start reading here, with docs/life-of-a-copy.md. Then, in a copy's order:
// submitter.h, planner.h (is it worth it), classify.h (what memory is it), context_registry.h
// (whose context), target.h (which paths), and a mover: copy_engine_mover.h or kernel_mover.h. Not
// on a copy's path: access.h (access for relays) and staging/stager.h (pageable memory).
//
// A process has one Engine. `open` does everything that allocates or blocks: contexts on the GPUs,
// peer access, kernels, streams, memory. `submit` allocates nothing, and waits only where the
// driver's own copy would wait (docs/architecture.md, "The law"). It either enqueues the whole
// transfer in the order of the caller's stream and returns kAccelerated, or enqueues nothing that
// moves bytes and returns the reason. The caller then makes the native copy. (kFailed is the
// exception: the driver has refused the gate, and the caller returns its error.) In a context that
// another thread is adding or forgetting, the answer is kNotReady.
//
// Threads: any thread may call any member at any time. Errors: `open` returns a Status; later
// failures are a Verdict. Source: MMA sections 3.2 to 3.4, as docs/architecture.md maps them.
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
  /// must outlive the engine. The calling thread's current context does not change. A GPU that
  /// cannot be prepared is left out (`problems`); `open` fails if no relay is left. On a server
  /// with nothing to gain (one GPU, no peers) it succeeds, and `submit` returns kNoRelay.
  static Result<std::unique_ptr<Engine>> open(const cuda::Driver& driver, const Options& options);

  /// Creates an engine that has done nothing on a GPU yet; `notify` tells the user of later
  /// failures. `add_context` may be called from now on. Each call of `open_next_relay` opens one
  /// relay of a wanted GPU, with the same errors, and may take seconds. A GPU is wanted by
  /// `request_relays`, or by a copy that was kNotReady. False: no relay is left to open. Then
  /// `open_targets` lets the copies of those GPUs in. One thread at a time for these two; all other
  /// members may be called meanwhile, and copies of other GPUs may come later.
  static Result<std::unique_ptr<Engine>> create(const cuda::Driver& driver, const Options& options,
                                                Notify notify = nullptr);
  void request_relays(GpuSet gpus) noexcept { registry_.request_relays(gpus); }
  Result<bool> open_next_relay() {
    return may_relay() ? registry_.open_next_relay() : Result<bool>(false);
  }
  void open_targets() {
    if (may_relay()) registry_.open_targets();
  }
  /// True if `open_next_relay` or `open_targets` has work.
  bool has_relay_requests() const noexcept { return may_relay() && registry_.has_relay_requests(); }
  /// True if a GPU is wanted and the copies of all wanted ones are let in, or if no GPU may relay.
  bool are_relays_open() const noexcept { return !may_relay() || registry_.are_relays_open(); }

  ~Engine();  ///< waits for transfers in flight, then gives everything back

  /// Registers `context`: loads the kernels there, and makes it a target, at once or when the
  /// relays are open. Null: every active primary context. Call it right after the context was made:
  /// to load code, the driver waits for all of the context's streams, and blocks all enqueuing
  /// there meanwhile. Calls for other contexts go on. Cheap if there is nothing new. Braid retains
  /// a primary context until it is forgotten. Waits for a thread that is adding the same context,
  /// and fails while a thread is forgetting it.
  Status add_context(CUcontext context);
  /// The same for a context that the program has created, so that it is no primary context.
  Status add_created(CUcontext context) {
    return may_relay() ? registry_.add_created(context) : Status();
  }
  /// The same for one GPU's primary context, if it is active.
  Status add_primary(CUdevice device, Kernels kernels = Kernels::kLoad) {
    return may_relay() ? registry_.add_primary(relays_.gpu_of(device), kernels) : Status();
  }
  bool knows_context(CUcontext context) { return registry_.has(context); }
  /// True if it is a primary context that braid has retained. Waits for nothing.
  bool holds_context(CUcontext context) { return registry_.holds(context); }
  Result<CUdevice> device_of(CUcontext context);

  /// Call it before anyone destroys or resets `context`: braid stops using it, and forgets its
  /// objects there.
  void forget_context(CUcontext context) { forget(context, ContextRegistry::End::kDestroyed); }

  /// Call it before the last owner other than braid releases a primary context. Same as
  /// forget_context, but braid also releases the context, so that it ends with the owner's release.
  void release_context(CUcontext context) { forget(context, ContextRegistry::End::kReleased); }

  /// The relays that should read and write memory of this GPU, or this range, so that its copies
  /// take every path. Ask when the program makes a pool, or maps a range for a GPU of its own.
  GpuSet relays_to_grant(int gpu) { return registry_.open_relays_of(gpu); }
  GpuSet relays_to_grant(CUdeviceptr address, size_t size_bytes);
  /// Gives them access. False: they have none, and copies take the permitted paths. Do not call it
  /// on a copy's path: the driver may take its time.
  bool grant_to(GpuSet relays, CUmemoryPool pool);
  bool grant_to(GpuSet relays, CUdeviceptr address, size_t size_bytes);
  /// The pools that the driver makes itself, each with its GPU.
  std::vector<std::pair<CUmemoryPool, int>> default_pools();
  /// Gives the relays of its GPU access to each of them. Returns how many have it now.
  size_t grant_default_pools();

  /// Call it when the program is short of memory on a GPU: the relay there frees its buffers if it
  /// is idle. Returns the number of bytes. Does not wait.
  uint64_t release_buffers(CUdevice device) noexcept { return registry_.release_buffers(device); }
  /// Allocates freed buffers again, where there is room, and where they were freed a second ago or
  /// earlier. False: not all of them. May take its time; one thread at a time.
  bool restore_buffers() noexcept;

  /// This process's row among those of the host that use braid.
  ProcessRow& row() noexcept { return peers_.row(); }
  /// The waits of this process for braid, a line each; empty if there are none. No driver call.
  std::string describe_waits() { return registry_.describe_waits(); }

  Outcome submit(const Batch& batch) noexcept { return submitter_.submit(batch); }
  /// The answer that `submit` would give now; enqueues nothing. It does not check states and
  /// channels, so it does not foresee kSaturated.
  Outcome forecast(const Batch& batch) noexcept {
    return submitter_.submit(batch, Intent::kForecast);
  }

  /// The paths that a linear copy of plain memory of this GPU would take now, its own link first.
  /// Only that one: the copy would be native. None: nothing is known, since no relay is open for
  /// the GPU or nothing was copied there yet. No driver call, and no wait.
  std::vector<CopyPath> paths_of(int gpu, Direction direction, uint64_t size_bytes) {
    return submitter_.paths_of(gpu, direction, size_bytes);
  }

  /// For a linear copy that `submit` declined, of host memory that is not pinned: stages it through
  /// pinned memory (staging/stager.h). May wait and, the first time, allocate, as a native pageable
  /// copy may. Returns the answer of the call that asked for the copy, or nothing if the copy is
  /// native.
  std::optional<Staged> stage(const Batch& linear, bool is_synchronous);

  /// Smaller transfers always stay native: `submit` need not be called for them.
  uint64_t threshold_bytes() const { return planner_.threshold_bytes(); }

  /// At most this many paths from now on, the direct one included; 0: no limit. For measuring.
  void limit_paths(int paths) { submitter_.limit_paths(paths); }

  /// Adds what each path has carried in transfers that have ended. Waits up to `wait_ms` for those
  /// in flight, and for other threads. It makes no driver call, so it is safe while the process
  /// exits. It allocates nothing and only tries locks, so with `wait_ms` 0 it is safe in a signal
  /// handler. It then leaves out what another thread, or the interrupted one, holds at that moment.
  void collect(int wait_ms, PathCounts& counts) noexcept {
    registry_.collect(std::chrono::milliseconds(wait_ms), counts);
  }
  std::vector<PathCount> collect(int wait_ms);

  /// Lists the open relays and their states; returns their number. As safe as a `collect` of 0 ms.
  size_t count_relays(std::span<RelayCount> into) noexcept { return registry_.count_relays(into); }

  /// The parts that could not be prepared or have failed since, in words a user can act on: GPUs
  /// that do not relay, contexts whose copies stay native, a cost file that is not used. All else
  /// works.
  std::vector<std::string> problems();

 private:
  Engine(const cuda::Driver& driver, const Options& options, RelayTopology relays,
         const LoadedCosts& loaded, Notify notify);
  void forget(CUcontext context, ContextRegistry::End how);
  bool may_relay() const { return relays_.all() != 0; }  // if not, there is nothing to gain

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
