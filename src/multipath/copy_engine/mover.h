// The copy-engine mover: the paper's way of carrying a transfer (MMA sections 3.3, 3.4 and 4), by
// DMA engines, relay buffers and a scheduler on the CPU. It spends no SM time.
//
// A transfer is three things in the program's stream: nothing, a word that tells the CPU that the
// stream has come so far (the paper's callback, at a tenth of its latency), and a gate that opens
// when the last slice has landed (the paper's Dummy Task). One thread moves the slices in between;
// it starts with the first transfer and sleeps when there is none.
//
// Threads: every member may be called from any thread at once, except that a caller must not let
// `submit` and `forget` of the same endpoint overlap its destruction. Errors: `open` and `prepare`
// return a Status; `submit` an Outcome. `submit` allocates nothing and waits for nothing but a
// short lock, under which no driver call is made. Source: the paper; what differs is said in
// scheduler.h, dispatch.h and docs/architecture.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/options.h"
#include "base/status.h"
#include "cuda/driver.h"
#include "multipath/copy_engine/dispatch.h"
#include "multipath/endpoint.h"
#include "multipath/path_counts.h"
#include "multipath/transfer.h"

namespace braid::multipath {

class CopyEngineMover {
 public:
  /// Allocates on the CPU only, and starts no thread. `driver` must outlive the mover.
  static Result<std::unique_ptr<CopyEngineMover>> open(const cuda::Driver& driver,
                                                       const Options& options,
                                                       const copy_engine::PaceCosts& costs);
  /// With a policy that no option can ask for: for comparing.
  static Result<std::unique_ptr<CopyEngineMover>> open(const cuda::Driver& driver,
                                                       const Options& options,
                                                       const copy_engine::Policy& policy);

  /// Waits for transfers in flight, up to a limit, and for its thread. In a forked child it lets go
  /// of everything instead: thread and GPUs are the parent's.
  ~CopyEngineMover();

  /// Makes the endpoint a target, and a relay if it is a primary context and `options` leave room
  /// for relay buffers. Allocates on the GPU, and may block. The endpoint must stay until it is
  /// forgotten.
  Status prepare(Endpoint& endpoint);

  /// Before the endpoint's context ends, by whomever: waits for transfers that use it, up to a
  /// limit, then gives them up.
  void forget(Endpoint& endpoint);

  /// Enqueues the whole batch in its stream's order, or nothing. Relays that have not been prepared
  /// are done without; peer access from each of them to the target must be on.
  Outcome submit(const Batch& batch, Endpoint& target, std::span<Endpoint* const> relays) noexcept;

  /// No transfer is in flight, and the thread sleeps. Never waits: false too while another thread
  /// is inside.
  bool is_idle() noexcept;
  /// Waits for that; false when it has not come after `limit_ms`.
  bool drain(int limit_ms);

  /// Adds what each path has carried, for transfers that have ended. No driver call, no allocation
  /// and no waiting: nothing is added while another thread is inside.
  void add_counts(PathCounts& counts) noexcept;
  /// CPU time that the scheduler's thread has spent so far.
  uint64_t cpu_time_ns();
  /// Device memory that relay buffers take on this GPU.
  uint64_t relay_bytes(int gpu);

 private:
  class Impl;
  explicit CopyEngineMover(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::multipath
