#include "emulator/model/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace braid::emulator {
namespace {

constexpr uint64_t kHugePage = 2u << 20;

}  // namespace

Memory::Memory(const topology::Server& server) {
  for (const topology::Gpu& gpu : server.gpus) arenas_.emplace_back(gpu.memory_bytes.value);
}

Allocation* Memory::find(uint64_t address) {
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  Allocation& candidate = std::prev(after)->second;
  return candidate.holds(address, 1) ? &candidate : nullptr;
}

bool Memory::overlaps(uint64_t address, uint64_t size_bytes) const {
  const auto next = allocations_.lower_bound(address);
  if (next != allocations_.end() && next->first - address < size_bytes) return true;
  return next != allocations_.begin() && std::prev(next)->second.holds(address, 1);
}

Allocation* Memory::add(Allocation made) {
  made.buffer_id = ++added_;
  const uint64_t address = made.address;
  return &allocations_.insert_or_assign(address, std::move(made)).first->second;
}

Allocation* Memory::add_device(int gpu, uint64_t size_bytes, Allocation made) {
  const auto address = arenas_[gpu].allocate(size_bytes);
  if (!address) return nullptr;
  made.kind = Allocation::Kind::kDevice;
  made.address = *address;
  made.size_bytes = size_bytes;
  made.place = Place::gpu(gpu);
  made.bytes = arenas_[gpu].bytes(*address);
  return add(std::move(made));
}

Allocation* Memory::add_host(int numa_node, uint64_t size_bytes, Allocation made) {
  if (size_bytes > (uint64_t{1} << 46)) return nullptr;
  void* at = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  if (size_bytes >= kHugePage) madvise(at, size_bytes, MADV_HUGEPAGE);
  if (made.kind != Allocation::Kind::kManaged) made.kind = Allocation::Kind::kHostAllocated;
  made.address = reinterpret_cast<uint64_t>(at);
  made.size_bytes = size_bytes;
  made.place = Place::host(numa_node);
  made.bytes = static_cast<std::byte*>(at);
  return add(std::move(made));
}

Allocation* Memory::add_registered(int numa_node, void* address, uint64_t size_bytes,
                                   Allocation made) {
  made.kind = Allocation::Kind::kHostRegistered;
  made.address = reinterpret_cast<uint64_t>(address);
  made.size_bytes = size_bytes;
  made.place = Place::host(numa_node);
  made.bytes = static_cast<std::byte*>(address);
  return add(std::move(made));
}

Allocation* Memory::add_mapped(uint64_t address, uint64_t size_bytes, const PhysicalPtr& physical) {
  const Reservations::Range* range = reservations_.find(address);
  if (!reservations_.map(address, size_bytes, *physical)) return nullptr;
  Allocation made;
  made.kind = Allocation::Kind::kMapped;
  made.address = address;
  made.size_bytes = size_bytes;
  made.device = physical->device();
  made.place = physical->place();
  made.grants = std::make_shared<Grants>();
  made.physical = physical;
  made.bytes = range->bytes + (address - range->address);
  return add(std::move(made));
}

Allocation* Memory::add_pooled(const PoolPtr& pool, uint64_t size_bytes) {
  Arena& arena = arenas_[pool->gpu];
  const auto address = pool->allocate(arena, size_bytes);
  if (!address) return nullptr;
  Allocation made;
  made.kind = Allocation::Kind::kPooled;
  made.address = *address;
  made.size_bytes = size_bytes;
  made.device = pool->device;
  made.place = Place::gpu(pool->gpu);
  made.grants = pool->grants;
  made.pool = pool;
  made.live = false;
  made.bytes = arena.bytes(*address);
  return add(std::move(made));
}

bool Memory::frees_pending(int gpu) const {
  return std::any_of(allocations_.begin(), allocations_.end(), [&](const auto& entry) {
    return entry.second.freeing && entry.second.place == Place::gpu(gpu);
  });
}

Allocation* Memory::next_to(const Allocation& allocation) {
  const auto next = allocations_.find(allocation.end());
  if (next == allocations_.end() || next->second.kind != allocation.kind) return nullptr;
  switch (allocation.kind) {
    case Allocation::Kind::kHostRegistered: return &next->second;
    case Allocation::Kind::kMapped:
      return reservations_.find(allocation.address) == reservations_.find(next->first)
                 ? &next->second
                 : nullptr;
    default: return nullptr;
  }
}

void Memory::remove(Allocation* allocation) {
  switch (allocation->kind) {
    case Allocation::Kind::kDevice:
      arenas_[allocation->place.number()].release(allocation->address, allocation->size_bytes);
      break;
    case Allocation::Kind::kPooled:
      allocation->pool->release(arenas_[allocation->pool->gpu], allocation->address,
                                allocation->size_bytes);
      break;
    case Allocation::Kind::kMapped:
      reservations_.unmap(allocation->address, allocation->size_bytes);
      break;
    case Allocation::Kind::kHostAllocated:
    case Allocation::Kind::kManaged: munmap(allocation->bytes, allocation->size_bytes); break;
    case Allocation::Kind::kHostRegistered: break;
  }
  allocations_.erase(allocation->address);
}

void Memory::remove_all_of(uint64_t context) {
  std::vector<Allocation*> left;
  for (auto& [address, allocation] : allocations_)
    if (allocation.context == context) left.push_back(&allocation);
  for (Allocation* allocation : left) remove(allocation);
}

}  // namespace braid::emulator
