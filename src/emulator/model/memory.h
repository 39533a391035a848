// All memory that the driver knows of, by address: device allocations, pinned host ranges, managed
// memory, mappings, allocations from pools. Addresses are unique over all of them (UVA).
// model/access.h holds the access rights. The world's lock covers it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "emulator/model/arena.h"
#include "emulator/model/machine.h"
#include "emulator/model/objects.h"
#include "emulator/model/pools.h"
#include "emulator/model/virtual_memory.h"
#include "topology/server.h"

namespace braid::emulator {

struct Allocation {
  enum class Kind {
    kDevice,
    kHostAllocated,
    kHostRegistered,
    kManaged,
    kMapped,  ///< of `physical`, into a reserved range
    kPooled,
  } kind = Kind::kDevice;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  int device = 0;        ///< CUDA ordinal of the GPU it belongs to; CU_DEVICE_CPU: none
  uint64_t context = 0;  ///< Context::id of the context that made it; 0: mapped or pooled
  Place place = Place::host(0);
  unsigned flags = 0;  ///< of cuMemHostAlloc or cuMemHostRegister
  uint64_t buffer_id = 0;
  bool sync_memops = false;
  bool exported = false;  ///< cuIpcGetMemHandle has returned a handle
  /// Grants of individual access; null: peer access between contexts decides.
  std::shared_ptr<Grants> grants;
  PhysicalPtr physical;        ///< of a mapping
  PoolPtr pool;                ///< of an allocation from a pool
  bool live = true;            ///< false until the stream has reached cuMemAllocAsync
  bool freeing = false;        ///< cuMemFreeAsync has been called
  std::byte* bytes = nullptr;  ///< the bytes, for the CPU

  static Allocation made_in(const Context& context, unsigned flags = 0) {
    Allocation made;
    made.device = context.device;
    made.context = context.id;
    made.flags = flags;
    return made;
  }

  /// Lies in host memory, where the CPU may write it at any time.
  bool is_host() const { return !place.is_gpu(); }
  bool is_pinned() const { return kind == Kind::kHostAllocated || kind == Kind::kHostRegistered; }
  bool is_read_only() const {
    return kind == Kind::kHostRegistered && (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  }
  uint64_t end() const { return address + size_bytes; }
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
  /// The memory at the start of a range without gaps: one allocation, or adjacent registrations, or
  /// adjacent mappings in one reserved range; the bytes are then adjacent too. Null for any other
  /// range, and if a part of it is not `allowed`.
  template <typename Allowed>
  Allocation* find(uint64_t address, uint64_t size_bytes, const Allowed& allowed) {
    Allocation* const first = find(address);
    for (Allocation* at = first; at != nullptr && allowed(*at); at = next_to(*at))
      if (at->end() - address >= size_bytes) return first;
    return nullptr;
  }
  Allocation* find(uint64_t address, uint64_t size_bytes) {
    return find(address, size_bytes, [](const Allocation&) { return true; });
  }
  /// True when some allocation shares a byte with the range.
  bool overlaps(uint64_t address, uint64_t size_bytes) const;

  /// `made` holds device, context, flags, and for host memory whether it is managed; the function
  /// fills in address, size, place and bytes. Null if there is no room.
  Allocation* add_device(int gpu, uint64_t size_bytes, Allocation made);
  Allocation* add_host(int numa_node, uint64_t size_bytes, Allocation made);
  Allocation* add_registered(int numa_node, void* address, uint64_t size_bytes, Allocation made);
  /// Maps the memory into a reserved range. No GPU may touch it yet.
  Allocation* add_mapped(uint64_t address, uint64_t size_bytes, const PhysicalPtr& physical);
  /// The allocation is not live yet.
  Allocation* add_pooled(const PoolPtr& pool, uint64_t size_bytes);

  /// Undoes any of these. The pages of registered memory stay the program's, those of a mapping
  /// stay its physical memory's.
  void remove(Allocation* allocation);
  /// Removes all memory that a context left behind. Also registered ranges, whose pages stay the
  /// program's.
  void remove_all_of(uint64_t context);

  /// True if streams will free memory of this GPU.
  bool frees_pending(int gpu) const;

  Arena& arena(int gpu) { return arenas_[gpu]; }
  Reservations& reservations() { return reservations_; }
  PhysicalHandles& physical() { return physical_; }

 private:
  Allocation* add(Allocation made);
  Allocation* next_to(const Allocation& allocation);

  std::vector<Arena> arenas_;  // by GPU number of the server
  Reservations reservations_;
  PhysicalHandles physical_;
  std::map<uint64_t, Allocation> allocations_;
  uint64_t added_ = 0;
};

}  // namespace braid::emulator
