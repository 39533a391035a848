// Primary contexts are reference counted: a GPU's context lives while it is retained, and braid
// retains those of its targets. The program sees the count as if braid retained none. Its last
// release ends the context; a context that only braid retains is inactive; and the program cannot
// release a context that it has not retained.
//
// The calls of the program and of braid on a primary context take time, and may wait for its
// streams. No lock is held meanwhile. Instead each GPU's calls under way are counted here, so that
// braid adopts no context that is ending, and no context ends while it is being adopted.
//
// Threads: any.
#pragma once

#include <cuda.h>

#include "multipath/engine.h"

namespace braid::preload {

/// Wraps a call by which the program retains a primary context.
class PrimaryRetain {
 public:
  explicit PrimaryRetain(CUdevice device) noexcept;
  ~PrimaryRetain();
  PrimaryRetain(const PrimaryRetain&) = delete;
  PrimaryRetain& operator=(const PrimaryRetain&) = delete;
  /// The driver has given the program this context.
  void succeeded(CUcontext context) noexcept;

 private:
  const CUdevice device_;
};

enum class GiveUp : bool {
  kRelease,  ///< of one of the program's references
  kReset,    ///< with every reference
};

/// Wraps a call by which the program gives up a primary context. No thread adopts the context
/// meanwhile. If another thread retains it, so that it lives on, the next call that looks for
/// contexts adopts it, without braid's kernels: that thread may have streams there by then.
class PrimaryGiveUp {
 public:
  /// Waits for a thread that is adopting the context, if it is about to end.
  PrimaryGiveUp(CUdevice device, GiveUp how) noexcept;
  ~PrimaryGiveUp();
  PrimaryGiveUp(const PrimaryGiveUp&) = delete;
  PrimaryGiveUp& operator=(const PrimaryGiveUp&) = delete;

  /// For a release: the program has no reference to release.
  bool is_unheld() const { return is_unheld_; }
  /// The context ends with the call, unless it has an owner that braid has not seen (a stranger).
  bool ends_it() const { return ends_it_; }
  bool has_strangers() const { return has_strangers_; }
  /// The context that was last returned to the program, or that the driver names.
  CUcontext context() const;
  /// The driver's result of a release.
  void released(CUresult result) noexcept;

 private:
  const CUdevice device_;
  bool is_unheld_ = false;
  bool has_strangers_ = false;
  bool ends_it_ = false;
  bool is_counted_ = false;  // the release has been counted
  int retained_before_ = 0;
  CUcontext told_ = nullptr;
};

/// True if the context is active for braid alone.
bool is_primary_unheld(CUdevice device) noexcept;

// Call the following inside braid, with a driver.

/// Call it once, before braid retains any context: contexts that are active now have another owner,
/// even if braid has not seen the program retain them.
void note_primaries() noexcept;

/// Registers the GPU's primary context with the engine, if it is active. Waits for another thread
/// that does so. False: the context is ending.
bool adopt_primary(multipath::Engine& engine, CUdevice device) noexcept;
/// The same for all GPUs, except contexts that another thread is about to adopt or end.
void adopt_primaries(multipath::Engine& engine) noexcept;

}  // namespace braid::preload
