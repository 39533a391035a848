// The contexts that braid works with: relays (relay.h), in contexts of braid's own, and the
// program's contexts, each of which becomes a target (target.h) once its GPU's relays are open. The
// program's come and go; relays stay. A GPU that no copy of the program's has wanted gets no
// relays: a worker that copies to one GPU has no context of braid's there (but for
// BRAID_OPENING=wait).
//
// Threads: any. One lock, which copies only try (`use`): while another thread adds or forgets a
// context, copies are native. It is free while the driver makes a relay's context.
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
#include "multipath/relays.h"
#include "multipath/target.h"

namespace braid::multipath {

class Roster {
 public:
  /// What is passed by reference must outlive the roster.
  Roster(const cuda::Driver& driver, const Options& options, const Relays& relays,
         const Planner& planner, Presence& presence, Say say);
  ~Roster();  ///< waits a limited time for transfers in flight, then gives everything back

  /// Copies of these GPUs are to have relays.
  void want(GpuSet gpus) { wanted_.fetch_or(gpus & every_gpu_); }
  /// Opens the next relay of a GPU that is wanted; false when none is left. Fails when no relay
  /// could be opened. One thread at a time.
  Result<bool> open_next();
  /// Makes targets of the contexts whose GPUs have all their relays; copies may use them from now
  /// on.
  void begin();
  /// Some GPU is wanted whose copies may not use targets yet.
  bool has_wishes() const {
    return (wanted_.load(std::memory_order_acquire) & ~ready_.load(std::memory_order_acquire)) != 0;
  }
  /// Copies of every GPU that is wanted may use its targets, and one is.
  bool is_open() const { return wanted_.load(std::memory_order_acquire) != 0 && !has_wishes(); }

  /// How a context ends.
  enum class End : uint8_t {
    kDestroyed,  ///< with all that is in it, whoever holds it
    kReleased,   ///< when nobody holds it any more: braid lets go of it too
  };

  /// Engine::add_context, and Engine::forget_context and release_context.
  Status add(CUcontext context);
  void forget(CUcontext context, End end);

  /// A target that stays as long as this lives; else null and why.
  struct Use {
    std::shared_lock<std::shared_mutex> lock;
    Target* target = nullptr;
    Verdict verdict = Verdict::kNotReady;
  };
  /// Of a copy in `stream` to or from `memory`. Waits for nothing.
  Use use(const Classification& memory, CUstream stream);

  /// Engine::give_back_memory and Engine::tend.
  uint64_t give_back_memory(CUdevice device);
  bool tend();

  const Relays& relays() const { return relays_; }
  /// Those of the GPU's relays that are open.
  GpuSet open_relays_of(int gpu);
  bool has_target_with_relay();

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
  struct Known {
    ProgramContext where;
    uint64_t number = 0;      // handles are used again
    bool is_held = false;     // braid has retained the primary context
    bool is_refused = false;  // no target could be opened
    std::unique_ptr<Target> target;
  };

  bool has_news(CUcontext context);
  Status add_active_primaries();
  Status add_known(int gpu, CUcontext context, bool is_held);
  Known* next_without_target(GpuSet gpus) const;
  Status keep(Known& known, Result<std::unique_ptr<Target>> opened);
  void unload_kernels(Known& known);
  GpuSet to_open() const;  // relays
  bool is_ready(int gpu) const {
    return (ready_.load(std::memory_order_acquire) & gpu_bit(gpu)) != 0;
  }
  std::vector<Relay*> relays_for(const ProgramContext& target);
  Known* find(CUcontext context);
  Status note(Status status);
  template <typename Visit>
  void for_each_target(const Visit& visit);

  const cuda::Driver& driver_;
  const Options& options_;
  const Relays& relays_;
  const Planner& planner_;
  Presence& presence_;
  const Say say_;
  const GpuSet every_gpu_;
  std::atomic<GpuSet> wanted_{0};
  std::atomic<GpuSet> ready_{0};  // whose relays have all been tried
  GpuSet tried_ = 0;              // relays, opened or refused; of the thread that opens
  Status first_refusal_;          // of a relay; likewise
  std::shared_mutex mutex_;       // guards all below
  std::vector<std::unique_ptr<Relay>> open_relays_;
  std::vector<std::unique_ptr<Known>> known_;
  uint64_t known_count_ = 0;
  std::vector<bool> seen_primaries_;  // by GPU: its active primary context has been dealt with
  std::vector<std::string> problems_;
  PathCounts forgotten_;  // counts of targets that are gone
  LinkUse link_use_{presence_};
};

}  // namespace braid::multipath
