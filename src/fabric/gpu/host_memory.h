// Pages of ours that GPUs and networks copy through: huge ones where there are some, and none of a
// child process's.
#pragma once

#include <memory>

#include "fabric/domain.h"

namespace braid::fabric::gpu {

class HostMemory {
 public:
  /// Null: there is no memory. All of it is touched.
  static std::shared_ptr<HostMemory> open(size_t size_bytes);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  MutableBytes bytes() const { return bytes_; }

 private:
  HostMemory(void* mapping, size_t mapping_bytes, size_t size_bytes);

  void* mapping_;
  size_t mapping_bytes_;
  MutableBytes bytes_;  // from the first huge page on
};

}  // namespace braid::fabric::gpu
