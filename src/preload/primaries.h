// Primary contexts are counted: a GPU's lives while anybody holds it, and braid holds those of its
// targets. The program sees the count as if braid held none: its last release ends the context,
// what it does not hold is inactive, and what it has not retained it cannot release.
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <set>

namespace braid::preload {

struct Primaries {
  struct Held {
    int count = 0;
    CUcontext context = nullptr;  ///< as the program was told last
  };

  std::mutex endings;             ///< held while one may end, or must not; before any other lock
  std::mutex lock;                ///< guards what is below
  std::map<CUdevice, Held> held;  ///< by the program
  std::set<CUdevice> strangers;   ///< active before braid, by a way that braid has not seen

  int holds_of(CUdevice device) const {
    const auto found = held.find(device);
    return found != held.end() ? found->second.count : 0;
  }
  /// If the context is active, it is so for braid alone.
  bool is_unheld(CUdevice device) const {
    return holds_of(device) == 0 && !strangers.contains(device);
  }
};

/// Never destroyed: threads of the program may still be here while the process exits.
Primaries& primaries();

// For the rest: inside braid, with a driver.

/// The primary context of a device; null while it has none, or when nobody says.
CUcontext primary_context(const Primaries& all, CUdevice device);

/// Before braid holds any: contexts that are active by now are held by somebody other than braid,
/// whether the program was seen to retain them or not. Call it holding `hold_primaries`.
void note_primaries() noexcept;

/// While this is held no primary context ends: hold it to create the engine, and to adopt those
/// that are active, or one might be adopted between braid's forgetting it and its end, or end while
/// the engine that holds it cannot be told. Taken before any other lock.
std::unique_lock<std::mutex> hold_primaries();

}  // namespace braid::preload
