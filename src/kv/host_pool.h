// The host's side of one GPU's cache: one pinned arena, slot after slot, block-first (layout.h).
//
// Pages are huge where the system has them, and near the GPU where the server has several NUMA
// nodes. After a fork they stay with the parent. Pinning takes tens of milliseconds a gigabyte:
// open the pool once, in parallel with other work. Sizes are bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.h"
#include "cuda/driver.h"
#include "host/huge_pages.h"

namespace braid::kv {

class HostPool {
 public:
  /// Pins memory in the current context, for all GPUs, near the current context's GPU. The caller
  /// asks first whether the host has so much (host/memory_left.h).
  static Result<std::unique_ptr<HostPool>> open(const cuda::Driver& driver, uint64_t size_bytes);
  /// Call it in the context that opened the pool, once no copy uses the pool.
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  std::byte* data() const { return pages_.bytes().data(); }

 private:
  HostPool(const cuda::Driver& driver, HugePages pages)
      : driver_(driver), pages_(std::move(pages)) {}
  Status pin();

  const cuda::Driver& driver_;
  HugePages pages_;
  bool is_pinned_ = false;
};

}  // namespace braid::kv
