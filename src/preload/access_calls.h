// The program's calls that set access and are under way. The driver may take its time over them,
// and nobody holds a lock meanwhile. Until such a call has ended, braid grants nothing of the
// memory that it names: the driver might carry the call out last, and take away what copies of
// braid's use by then. Whoever ends the call makes up for that.
#pragma once

#include <cuda.h>

#include <list>
#include <utility>
#include <vector>

#include "preload/access_ledger.h"

namespace braid::preload {

inline bool overlap(const MappedRange& one, const MappedRange& other) {
  return one.address - other.address < other.size_bytes ||
         other.address - one.address < one.size_bytes;
}
/// A pool to grant, and the GPU of its memory; -1: unknown.
struct GpuPool {
  CUmemoryPool pool = nullptr;
  int gpu = -1;
};
inline bool overlap(const GpuPool& one, const GpuPool& other) { return one.pool == other.pool; }

/// Not safe for concurrent use: its owner locks.
template <typename Memory>
class AccessCalls {
  struct Call {
    Memory memory;
    std::vector<Memory> postponed;
  };
  using Calls = std::list<Call>;

 public:
  using Place = typename Calls::iterator;

  Place begin(const Memory& memory) { return calls_.insert(calls_.end(), Call{memory, {}}); }
  /// Returns what is to be granted now.
  std::vector<Memory> end(Place call) noexcept {
    std::vector<Memory> postponed = std::move(call->postponed);
    calls_.erase(call);
    return postponed;
  }

  /// True: a call under way names some of the memory, and the end of that call returns it.
  bool postpone(const Memory& memory) {
    for (Call& call : calls_) {
      if (!overlap(call.memory, memory)) continue;
      call.postponed.push_back(memory);
      return true;
    }
    return false;
  }

 private:
  Calls calls_;
};

}  // namespace braid::preload
