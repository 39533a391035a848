// Primary contexts are counted: a GPU's lives while anybody holds it, and braid holds those of its
// targets. The program sees the count as if braid held none: its last release ends the context,
// what it does not hold is inactive, and what it has not retained it cannot release.
//
// What the program and braid do to a primary context takes time, and may wait for its streams. No
// lock is held meanwhile: each GPU's calls are counted here while they are under way, so that braid
// adopts no context that is ending, and none ends while it is being adopted.
//
// Threads: any.
#pragma once

#include <cuda.h>

#include "multipath/engine.h"

namespace braid::preload {

/// The program's retaining of a primary context, around the driver's.
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
  kRelease,  ///< of one of the program's holds
  kReset,    ///< whoever holds the context
};

/// The program gives a primary context up, around the driver's call. Nobody adopts it meanwhile;
/// whoever wanted to does so afterwards.
class PrimaryGiveUp {
 public:
  /// Waits for who is adopting a context that is about to end.
  PrimaryGiveUp(CUdevice device, GiveUp how) noexcept;
  ~PrimaryGiveUp();
  PrimaryGiveUp(const PrimaryGiveUp&) = delete;
  PrimaryGiveUp& operator=(const PrimaryGiveUp&) = delete;

  /// A release: the program has no hold that it could release.
  bool is_unheld() const { return is_unheld_; }
  /// The context ends with the call.
  bool ends_it() const { return ends_it_; }
  /// It, as the program was told last, or as the driver says.
  CUcontext context() const;
  /// What the driver said of a release.
  void released(CUresult result) noexcept;

 private:
  const CUdevice device_;
  bool is_unheld_ = false;
  bool ends_it_ = false;
  bool is_counted_ = false;  // the release, by now
  CUcontext told_ = nullptr;
};

/// If the context is active, it is so for braid alone.
bool is_primary_unheld(CUdevice device) noexcept;

// For the rest: inside braid, with a driver.

/// Before braid holds any: contexts that are active by now are held by somebody other than braid,
/// whether the program was seen to retain them or not. Once.
void note_primaries() noexcept;

/// Makes the GPU's primary context known to the engine, if it is active. Waits for who else does
/// so. False: the context is ending, and whoever ends it tries again afterwards.
bool adopt_primary(multipath::Engine& engine, CUdevice device) noexcept;
/// The same of all GPUs but those whose contexts somebody else is about to adopt or end.
void adopt_primaries(multipath::Engine& engine) noexcept;

}  // namespace braid::preload
