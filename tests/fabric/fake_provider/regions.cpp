#include "fabric/fake_provider/regions.h"

namespace braid::fabric::fake {
namespace {

constexpr uint64_t kEveryAccess = ~uint64_t{0};

bool holds(const Region& region, uint64_t address, size_t size_bytes) {
  const auto base = reinterpret_cast<uint64_t>(region.base);
  return address >= base && size_bytes <= region.size_bytes &&
         address - base <= region.size_bytes - size_bytes;
}

}  // namespace

Region& Regions::add(std::byte* base, size_t size_bytes, uint64_t access, bool may_cache,
                     std::mt19937_64& random) {
  const bool is_cached = caches_ && may_cache;
  const auto address = reinterpret_cast<uint64_t>(base);
  if (is_cached)
    for (const auto& [key, region] : by_key_)
      if (region->is_cached && holds(*region, address, size_bytes)) return *region;
  uint64_t key = 0;
  do key = random() & 0xffffffff;
  while (by_key_.contains(key));
  auto region = std::make_unique<Region>();
  region->base = base;
  region->size_bytes = size_bytes;
  region->access = is_cached ? kEveryAccess : access;
  region->is_cached = is_cached;
  region->key = key;
  region->mem_desc = region.get();
  open_.insert(region.get());
  return *(by_key_[key] = std::move(region));
}

void Regions::close(Region& region) {
  if (region.is_cached) return;
  open_.erase(&region);
  by_key_.erase(region.key);
}

std::byte* Regions::find(uint64_t key, uint64_t address, size_t size_bytes, uint64_t access) const {
  const auto found = by_key_.find(key);
  if (found == by_key_.end() || (found->second->access & access) == 0) return nullptr;
  const Region& region = *found->second;
  if (!holds(region, address, size_bytes)) return nullptr;
  return region.base + (address - reinterpret_cast<uint64_t>(region.base));
}

bool Regions::covers(const void* descriptor, const void* memory, size_t size_bytes) const {
  return open_.contains(descriptor) && holds(*static_cast<const Region*>(descriptor),
                                             reinterpret_cast<uint64_t>(memory), size_bytes);
}

}  // namespace braid::fabric::fake
