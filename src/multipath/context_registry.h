// The contexts that braid works with: relays (relay.h), in contexts of braid's own, and the
// program's contexts, each of which becomes a target (target.h) once its GPU's relays are open. The
// program's come and go; relays stay. A GPU that no copy of the program's has wanted gets no
// relays: a worker that copies to one GPU has no context of braid's there (but for
// BRAID_OPENING=wait).
//
// Threads: any. One lock, which copies only try (`find_target`): while another thread adds or
// forgets a context, copies are native. It is free while the driver makes a relay's context.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/classify.h"
#include "multipath/path_counts.h"
#include "multipath/planner.h"
#include "multipath/relay.h"
#include "multipath/relay_topology.h"
#include "multipath/target.h"

namespace braid::multipath {

class ContextRegistry {
 public:
  /// What is passed by reference must outlive the registry.
  ContextRegistry(const cuda::Driver& driver, const Options& options, const RelayTopology& relays,
                  const Planner& planner, PeerProcesses& peers, Notify notify);
  ~ContextRegistry();  ///< waits a limited time for transfers in flight, then gives everything back

  /// Copies of these GPUs are to have relays.
  void request_relays(GpuSet gpus) { requested_.fetch_or(gpus & every_gpu_); }
  /// Opens the next relay of a GPU that is wanted; false when none is left. Fails when no relay
  /// could be opened. One thread at a time.
  Result<bool> open_next_relay();
  /// Makes targets of the contexts whose GPUs have all their relays; copies may use them from now
  /// on.
  void open_targets();
  /// Some GPU is wanted whose copies may not use targets yet.
  bool has_relay_requests() const {
    return (requested_.load(std::memory_order_acquire) & ~ready_.load(std::memory_order_acquire)) !=
           0;
  }
  /// Copies of every GPU that is wanted may use its targets, and one is.
  bool are_relays_open() const {
    return requested_.load(std::memory_order_acquire) != 0 && !has_relay_requests();
  }

  /// How a context ends.
  enum class End : uint8_t {
    kDestroyed,  ///< with all that is in it, whoever holds it
    kReleased,   ///< when nobody holds it any more: braid lets go of it too
  };

  /// Engine::add_context, and Engine::forget_context and release_context.
  Status add(CUcontext context);
  void forget(CUcontext context, End how);

  /// A target that stays as long as this lives; else null and why.
  struct FoundTarget {
    std::shared_lock<std::shared_mutex> lock;
    Target* target = nullptr;
    Verdict verdict = Verdict::kNotReady;
  };
  /// Of a copy in `stream` to or from `memory`. Waits for nothing.
  FoundTarget find_target(const Classification& memory, CUstream stream);

  /// Engine::release_buffers and Engine::restore_buffers.
  uint64_t release_buffers(CUdevice device);
  bool restore_buffers();

  /// Those of the GPU's relays that are open.
  GpuSet open_relays_of(int gpu);

  /// Engine::problems, as far as contexts are concerned.
  std::vector<std::string> problems();

  /// Engine::describe_waits.
  std::string describe_waits();
  /// Engine::count_relays.
  size_t count_relays(std::span<RelayCount> into);
  /// Engine::collect.
  void collect(std::chrono::milliseconds wait, PathCounts& counts);

 private:
  // A context of the program's.
  struct Entry {
    ProgramContext where;
    uint64_t number = 0;      // handles are used again
    bool is_held = false;     // braid has retained the primary context
    bool is_refused = false;  // no target could be opened
    std::unique_ptr<Target> target;
  };

  bool has_new_context(CUcontext context);
  Status add_active_primaries();
  Status add_entry(int gpu, CUcontext context, bool is_held);
  Entry* next_without_target(GpuSet gpus) const;
  Status install(Entry& entry, Result<std::unique_ptr<Target>> opened);
  void unload_kernels(Entry& entry);
  GpuSet to_open() const;      // relays
  GpuSet open_relays() const;  // with the lock, or in the thread that opens
  bool is_ready(int gpu) const {
    return (ready_.load(std::memory_order_acquire) & gpu_bit(gpu)) != 0;
  }
  std::vector<Relay*> relays_for(const ProgramContext& target);
  Entry* find(CUcontext context);
  Status note(Status status);
  template <typename Visit>
  void for_each_target(const Visit& visit);

  const cuda::Driver& driver_;
  const Options& options_;
  const RelayTopology& relays_;
  const Planner& planner_;
  PeerProcesses& peers_;
  const Notify notify_;
  const GpuSet every_gpu_;
  std::atomic<GpuSet> requested_{0};
  std::atomic<GpuSet> ready_{0};  // whose relays have all been tried
  GpuSet refused_ = 0;            // relays that could not be opened; of the thread that opens
  Status first_refusal_;          // of a relay; likewise
  std::shared_mutex mutex_;       // guards all below
  std::vector<std::unique_ptr<Relay>> open_relays_;
  std::vector<std::unique_ptr<Entry>> entries_;
  uint64_t entry_count_ = 0;
  std::vector<bool> seen_primaries_;  // by GPU: its active primary context has been dealt with
  std::vector<std::string> problems_;
  PathCounts forgotten_;  // counts of targets that are gone
  LinkContention contention_{peers_};
};

}  // namespace braid::multipath
