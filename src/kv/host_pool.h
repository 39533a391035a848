// The host's side of one GPU's cache: one pinned arena, slot after slot, block-first (layout.h).
//
// Pages are huge where the system has them, near the GPU where the server has several NUMA nodes,
// and the parent's after a fork. Pinning takes tens of milliseconds a gigabyte: open it beside
// other work, once. Sizes are bytes.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "cuda/driver.h"

namespace braid::kv {

class HostPool {
 public:
  /// In the current context, for all GPUs; near the current context's. Whether the host has so much
  /// is the caller's to ask (host_memory.h).
  static Result<std::unique_ptr<HostPool>> open(const cuda::Driver& driver, uint64_t size_bytes);
  /// In the context that it was opened in, once nothing copies to or from it.
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  std::byte* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  HostPool(const cuda::Driver& driver, void* mapping, uint64_t size_bytes);
  Status pin();

  const cuda::Driver& driver_;
  void* mapping_;
  std::byte* data_;  // from the first huge page on
  uint64_t size_bytes_;
  bool is_pinned_ = false;
};

}  // namespace braid::kv
