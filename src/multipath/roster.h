// The contexts that braid works in: an endpoint (endpoint.h) for each, a relay on each GPU that may
// be one, and a target (target.h) for each context that copies go to or come from. Contexts come
// when the program makes or uses them, and go when it ends them.
//
// Threads: any, and one of its own (relay_watch.h). One lock, which copies and that thread only try
// (`use`): while another thread is in `add` or `forget`, which may wait for a GPU, copies are
// native, as during a step of opening. A Target guards itself.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/classify.h"
#include "multipath/copy_engine/mover.h"
#include "multipath/endpoint.h"
#include "multipath/path_counts.h"
#include "multipath/planner.h"
#include "multipath/relay_watch.h"
#include "multipath/relays.h"
#include "multipath/target.h"

namespace braid::multipath {

class Roster {
 public:
  /// What is passed by reference must outlive the roster. `copy_engine` null: kernels carry
  /// everything.
  Roster(const cuda::Driver& driver, const Options& options, const Relays& relays,
         const Planner& planner, std::unique_ptr<CopyEngineMover> copy_engine);
  ~Roster();  ///< waits a limited time for transfers in flight, then gives everything back

  /// Opens the next relay, or after the last makes the next GPU's primary context a target if it is
  /// active; false when nothing is left. Fails when no relay could be opened. One thread at a time;
  /// the lock is free while the driver makes a relay's context.
  Result<bool> open_next();
  /// Copies may use the targets from now on. Call when `open_next` has nothing left.
  void begin();
  bool is_opening() const { return is_opening_.load(std::memory_order_acquire); }

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

  /// Call when a transfer by kernels has been launched: its relays are looked after.
  void watch_relays() noexcept { watch_.begin(); }

  const Relays& relays() const { return relays_; }
  /// Those of the GPU's relays that are open.
  GpuSet open_relays_of(int gpu);
  bool has_target_with_relay();

  /// Engine::problems and report_problems, as far as contexts are concerned.
  std::vector<std::string> problems();
  void report_problems(void (*say)(const char* problem)) noexcept { say_ = say; }

  /// Some transfer's slices have not all been given to copy engines yet, or may not have been.
  bool feeds_copy_engines() { return copy_engine_ != nullptr && !copy_engine_->is_idle(); }
  /// Waits until that is no longer so; false when it still is after `limit`.
  bool settle(std::chrono::milliseconds limit) {
    return copy_engine_ == nullptr || copy_engine_->drain(static_cast<int>(limit.count()));
  }

  /// Engine::collect.
  void collect(std::chrono::milliseconds wait, PathCounts& counts);

 private:
  Status finish_relays();
  Result<CUcontext> retain_relay(int gpu) const;
  bool open_relay(int gpu, const Result<CUcontext>& context);
  GpuSet reopen_relays();
  void restore_relays(GpuSet reopened);
  bool has_news(CUcontext context);
  bool is_settled(CUcontext context);
  Status adopt_active_contexts();
  Status adopt_primary(int gpu);
  Status adopt(int gpu, CUcontext context, bool retained);
  Status make_target(Endpoint& endpoint);
  bool link(const Endpoint& relay, const Endpoint& target);
  std::vector<Endpoint*> link_relays(const Endpoint& target);
  Result<Endpoint*> endpoint_for(int gpu, CUcontext context, bool retained);
  void remove(Endpoint& endpoint);
  bool look_after_transfers(uint64_t now_ns);
  void drop_failed(std::span<const Endpoint* const> failed);
  Endpoint* find_endpoint(CUcontext context);
  Target* find_target(CUcontext context);
  Status note(Status status);

  const cuda::Driver& driver_;
  const Options& options_;
  const Relays& relays_;
  const Planner& planner_;
  std::unique_ptr<CopyEngineMover> copy_engine_;
  std::atomic<bool> is_opening_{true};
  int next_to_open_ = 0;     // of the thread that opens: each GPU as a relay, then as a target
  std::shared_mutex mutex_;  // guards all below
  Status first_refusal_;     // of a relay
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<Endpoint*> relay_endpoints_;  // by GPU; null: not a relay
  GpuSet gone_relays_ = 0;                  // whose context has ended: to be opened again
  std::vector<std::unique_ptr<Target>> targets_;
  std::vector<bool> seen_primaries_;  // by GPU: its active primary context has been dealt with
  struct Refused {
    CUcontext context;
    int gpu;
  };
  std::vector<Refused> refused_;  // contexts that could not be made targets
  std::vector<std::string> problems_;
  PathCounts forgotten_;  // counts of targets that are gone
  std::atomic<void (*)(const char*)> say_{nullptr};
  RelayWatch watch_;
};

}  // namespace braid::multipath
