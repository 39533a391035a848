// All memory that the driver knows of: device allocations and pinned host ranges, by address.
// Addresses are unique over all of them (UVA). The world's lock covers it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "emulator/model/arena.h"
#include "emulator/simulator/machine.h"
#include "topology/server.h"

namespace braid::emulator {

struct Allocation {
  enum class Kind { kDevice, kHostAllocated, kHostRegistered } kind = Kind::kDevice;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  int device = 0;        ///< CUDA ordinal of the context that made it
  uint64_t context = 0;  ///< Context::id of that context
  Place place = Place::host(0);
  unsigned flags = 0;  ///< of cuMemHostAlloc or cuMemHostRegister
  uint64_t buffer_id = 0;
  bool sync_memops = false;
  std::byte* bytes = nullptr;  ///< where the CPU finds them

  bool is_host() const { return kind != Kind::kDevice; }
  bool holds(uint64_t at, uint64_t size) const {
    return at >= address && size <= size_bytes && at - address <= size_bytes - size;
  }
  std::byte* bytes_at(uint64_t at) const { return bytes + (at - address); }
};

class Memory {
 public:
  explicit Memory(const topology::Server& server);

  /// The allocation that holds the address; null when none does.
  Allocation* find(uint64_t address);
  /// True when some allocation shares a byte with the range.
  bool overlaps(uint64_t address, uint64_t size_bytes) const;

  /// `made` says device, context, flags; address, size, place and bytes are filled in. Null when
  /// there is no room.
  Allocation* add_device(int gpu, uint64_t size_bytes, Allocation made);
  Allocation* add_host(int numa_node, uint64_t size_bytes, Allocation made);
  Allocation* add_registered(int numa_node, void* address, uint64_t size_bytes, Allocation made);

  void remove(Allocation* allocation);
  /// All that a context left behind. Registered ranges too: the pages stay the program's.
  void remove_all_of(uint64_t context);

  Arena& arena(int gpu) { return arenas_[gpu]; }

 private:
  Allocation* add(Allocation made);

  std::vector<Arena> arenas_;  // by GPU number of the server
  std::map<uint64_t, Allocation> allocations_;
  uint64_t added_ = 0;
};

/// True when the process may read the range: the ends and a byte of each page between are probed,
/// so that a copy from an address that is not mapped is an error and not a crash.
bool is_readable(const void* address, uint64_t size_bytes);

}  // namespace braid::emulator
