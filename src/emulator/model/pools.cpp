#include "emulator/model/pools.h"

#include <algorithm>
#include <utility>

namespace braid::emulator {

std::optional<uint64_t> Pool::allocate(Arena& arena, uint64_t size_bytes) {
  const uint64_t taken = Arena::footprint_bytes(size_bytes);
  if (taken < size_bytes) return std::nullopt;
  if (most_bytes != 0 && (taken > most_bytes || used_bytes > most_bytes - taken))
    return std::nullopt;
  const uint64_t from_cache = std::min(cached_bytes, taken);
  arena.refund(from_cache);
  const auto address = arena.allocate(size_bytes);
  if (!address) {
    arena.charge(from_cache);
    return std::nullopt;
  }
  cached_bytes -= from_cache;
  used_bytes += taken;
  used_high_bytes = std::max(used_high_bytes, used_bytes);
  reserved_high_bytes = std::max(reserved_high_bytes, reserved_bytes());
  return address;
}

void Pool::release(Arena& arena, uint64_t address, uint64_t size_bytes) {
  const uint64_t taken = Arena::footprint_bytes(size_bytes);
  arena.release(address, size_bytes);
  used_bytes -= taken;
  arena.charge(taken);
  cached_bytes += taken;
  trim(arena, release_threshold_bytes);
}

void Pool::trim(Arena& arena, uint64_t keep_bytes) {
  const uint64_t kept = keep_bytes > used_bytes ? keep_bytes - used_bytes : 0;
  if (kept >= cached_bytes) return;
  arena.refund(cached_bytes - kept);
  cached_bytes = kept;
}

Pools::Pools(const std::vector<int>& visible) {
  for (size_t device = 0; device < visible.size(); ++device)
    defaults_.push_back(create(static_cast<int>(device), visible[device], 0));
  current_ = defaults_;
}

PoolPtr Pools::create(int device, int gpu, uint64_t most_bytes) {
  auto pool = std::make_shared<Pool>();
  pool->device = device;
  pool->gpu = gpu;
  pool->most_bytes = most_bytes;
  (*pool->grants)[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  pool->handle = table_.add(pool);
  return pool;
}

void Pools::destroy(const PoolPtr& pool) {
  table_.remove(pool->handle);
  if (current_[pool->device] == pool) current_[pool->device] = defaults_[pool->device];
}

}  // namespace braid::emulator
