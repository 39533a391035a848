// The contexts that braid works with: relays (relay.h), in contexts of braid's own, and the
// program's contexts. Each of these becomes a target (target.h) once its GPU's relays are open. The
// program's contexts come and go; relays stay. A GPU gets relays only when a copy of the program
// wants them. So in a worker that copies to one GPU, braid has no context on that GPU (except with
// BRAID_OPENING=wait).
//
// Threads: any. One short lock, which copies only try to take (`find_target`). The lock is free
// while the driver makes a relay's context, loads code into a context of the program, or waits for
// one that ends, and while a copy is enqueued. So a thread that adds or forgets a context delays no
// thread with another context. Threads that work with a context meanwhile are counted as its users;
// `forget` waits until there are none.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
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

/// Whether braid loads its kernels into a context of the program. The driver waits for all of the
/// context's streams meanwhile. Without kernels, batches stay native there.
enum class Kernels : bool { kLoad, kNone };

class ContextRegistry {
 public:
  /// Objects passed by reference must outlive the registry.
  ContextRegistry(const cuda::Driver& driver, const Options& options, const RelayTopology& relays,
                  const Planner& planner, PeerProcesses& peers, Notify notify);
  ~ContextRegistry();  ///< waits a limited time for transfers in flight, then gives everything back

  /// Copies of these GPUs will need relays.
  void request_relays(GpuSet gpus) { requested_.fetch_or(gpus & every_gpu_); }
  /// Opens the next relay of a requested GPU; false when none is left. Fails if no relay could be
  /// opened. One thread at a time.
  Result<bool> open_next_relay();
  /// Makes targets of the contexts whose GPUs have all their relays. Copies may use them from now
  /// on.
  void open_targets();
  /// True if copies of some requested GPU may not use targets yet.
  bool has_relay_requests() const {
    return (requested_.load(std::memory_order_acquire) & ~ready_.load(std::memory_order_acquire)) !=
           0;
  }
  /// True if a GPU was requested, and copies of every requested GPU may use its targets.
  bool are_relays_open() const {
    return requested_.load(std::memory_order_acquire) != 0 && !has_relay_requests();
  }

  /// How a context ends.
  enum class End : uint8_t {
    kDestroyed,  ///< with everything in it, even if it is retained
    kReleased,   ///< when its last owner releases it: braid releases it too
  };

  /// Engine::add_context for one context; Engine::add_created; Engine::add_primary. Does nothing if
  /// there is no context, or it is known. Waits for a thread that is adding the context. Fails if
  /// the context is ending.
  Status add(CUcontext context);
  Status add_created(CUcontext context);
  Status add_primary(int gpu, Kernels kernels = Kernels::kLoad);
  /// Engine::forget_context and release_context. Waits for all threads that work with the context.
  void forget(CUcontext context, End how);
  /// True if the context is known. Waits for a thread that is adding it.
  bool has(CUcontext context);
  /// Engine::holds_context.
  bool holds(CUcontext context);
  /// Asks the driver.
  Result<int> gpu_of(CUcontext context);

  class FoundTarget;
  /// The target of a copy in `stream` to or from `memory`. Waits for nothing.
  FoundTarget find_target(const Classification& memory, CUstream stream);

  /// A target on the GPU. Waits for nothing.
  FoundTarget find_target_on(int gpu);

  /// Engine::release_buffers and Engine::restore_buffers.
  uint64_t release_buffers(CUdevice device);
  bool restore_buffers();

  /// The GPU's open relays.
  GpuSet open_relays_of(int gpu);

  /// Engine::problems, those of contexts.
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
    enum class State : uint8_t {
      kLoading,  // a thread loads its kernels, or opens its target
      kLoaded,   // its target opens once its GPU's relays are open
      kOpen,     // it has a target, which copies may use
      kRefused,  // no target could be opened
      kEnding,   // a thread forgets it
    };
    ProgramContext where;
    bool is_held = false;  // braid has retained the primary context
    State state = State::kLoading;
    std::atomic<int> users{0};  // threads that work with it without the lock: it stays
    std::unique_ptr<Target> target;
  };

  using Lock = std::unique_lock<std::shared_mutex>;
  class Loading;
  CUcontext retain_primary(int gpu);
  bool has_primary(int gpu);
  Status add_entry(int gpu, CUcontext context, bool is_held, Kernels kernels = Kernels::kLoad);
  Status load_and_open(Lock& lock, Entry& entry, Kernels kernels);
  Entry* next_without_target(GpuSet gpus) const;
  Status open_target(Lock& lock, Loading& loading);
  void leave(Entry& entry);
  void end(Entry& entry, bool is_drained, bool context_lives);
  void free_spare_memory();
  GpuSet to_open() const;      // relays
  GpuSet open_relays() const;  // call it with the lock, or in the thread that opens
  bool is_ready(int gpu) const {
    return (ready_.load(std::memory_order_acquire) & gpu_bit(gpu)) != 0;
  }
  std::vector<Relay*> open_relays_for(int gpu) const;
  Entry* find(CUcontext context);
  template <typename AnyLock>
  Entry* find_loaded(AnyLock& lock, CUcontext context);
  Relay* open_relay_on(int gpu) const;
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
  std::atomic<GpuSet> ready_{0};         // GPUs whose relays have all been tried
  GpuSet refused_ = 0;                   // relays that failed to open; for the thread that opens
  Status first_refusal_;                 // of a relay; for the thread that opens
  std::condition_variable_any changed_;  // an entry's state, or the users of one that is ending
  std::shared_mutex mutex_;              // guards all below
  std::vector<std::unique_ptr<Relay>> open_relays_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::string> problems_;
  PathCounts forgotten_;  // counts of targets that are gone
  LinkContention contention_{peers_};
  SpareMemory spare_{driver_};  // has a lock of its own
};

/// A target that stays as long as this lives; else null and why.
class ContextRegistry::FoundTarget {
 public:
  explicit FoundTarget(Verdict why) : verdict_(why) {}
  /// With the registry's lock.
  FoundTarget(ContextRegistry& registry, Entry& entry) : registry_(&registry), entry_(&entry) {
    ++entry.users;
  }
  ~FoundTarget() {
    if (entry_ != nullptr) registry_->leave(*entry_);
  }
  FoundTarget(const FoundTarget&) = delete;
  FoundTarget& operator=(const FoundTarget&) = delete;

  Target* target() const { return entry_ != nullptr ? entry_->target.get() : nullptr; }
  Verdict verdict() const { return verdict_; }

 private:
  ContextRegistry* registry_ = nullptr;
  Entry* entry_ = nullptr;
  Verdict verdict_ = Verdict::kAccelerated;
};

}  // namespace braid::multipath
