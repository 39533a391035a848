// Registered memory of one NIC, with keys that the provider chooses.
#pragma once

#include <rdma/fi_domain.h>

#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <set>

namespace braid::fabric::fake {

class Nic;

struct Region : fid_mr {
  Nic* nic = nullptr;
  std::byte* base = nullptr;
  size_t size_bytes = 0;
  uint64_t access = 0;
  bool is_cached = false;  // stays registered when it is closed
};

class Regions {
 public:
  explicit Regions(bool caches) : caches_(caches) {}

  /// Of the cache, if it holds this memory; then it has the key that it had before.
  Region& add(std::byte* base, size_t size_bytes, uint64_t access, bool may_cache,
              std::mt19937_64& random);
  void close(Region& region);

  /// Null: no such region, not its bytes, or not with this access.
  std::byte* find(uint64_t key, uint64_t address, size_t size_bytes, uint64_t access) const;
  /// Whether `descriptor` is of a region that is open, and holds these bytes.
  bool covers(const void* descriptor, const void* memory, size_t size_bytes) const;

 private:
  bool caches_;
  std::map<uint64_t, std::unique_ptr<Region>> by_key_;
  std::set<const void*> open_;  // what by_key_ holds
};

}  // namespace braid::fabric::fake
