// The contexts that braid works with: relays (relay.h), in contexts of braid's own, and the
// program's contexts, each of which becomes a target (target.h) once its GPU's relays are open. The
// program's come and go; relays stay. A GPU that no copy of the program's has wanted gets no
// relays: a worker that copies to one GPU has no context of braid's there (but for
// BRAID_OPENING=wait).
//
// Threads: any. One short lock, which copies only try (`find_target`). It is free while the driver
// makes a relay's context, loads code into a context of the program's, or waits for one that ends:
// whoever adds or forgets a context holds up nobody who has another.
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

  /// Engine::add_context, of one context; Engine::add_primary. Nothing if there is none, or it is
  /// known.
  Status add(CUcontext context);
  Status add_primary(int gpu);
  /// Engine::forget_context and release_context. Waits for a thread that is adding the context.
  void forget(CUcontext context, End how);
  /// The context is known.
  bool has(CUcontext context);

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
    bool is_held = false;             // braid has retained the primary context
    bool is_refused = false;          // no target could be opened
    bool is_ending = false;           // it has been forgotten
    std::atomic<bool> is_busy{true};  // a thread loads its kernels or opens its target
    std::unique_ptr<Target> target;
  };

  // An entry that a thread works on without the lock. It stays where it is: `forget` waits.
  class Busy {
   public:
    explicit Busy(Entry& entry) : entry_(entry) { entry_.is_busy = true; }
    ~Busy() { entry_.is_busy = false; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    Entry& entry_;
  };

  using Lock = std::unique_lock<std::shared_mutex>;
  Entry& make_entry(int gpu, CUcontext context, bool is_held);
  Status load_and_open(Entry& entry);
  Entry* next_without_target(GpuSet gpus) const;
  Status open_target(Lock& lock, Entry& entry);
  std::unique_ptr<Entry> take(Entry& entry);
  void unload_kernels(Entry& entry);
  void free_spare_memory();
  GpuSet to_open() const;      // relays
  GpuSet open_relays() const;  // with the lock, or in the thread that opens
  bool is_ready(int gpu) const {
    return (ready_.load(std::memory_order_acquire) & gpu_bit(gpu)) != 0;
  }
  std::vector<Relay*> open_relays_for(int gpu) const;
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
  GpuSet seen_primaries_ = 0;  // whose active primary contexts have been dealt with
  std::vector<std::string> problems_;
  PathCounts forgotten_;  // counts of targets that are gone
  LinkContention contention_{peers_};
  SpareMemory spare_{driver_};  // has a lock of its own
};

}  // namespace braid::multipath
