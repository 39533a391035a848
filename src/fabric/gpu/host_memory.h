// Host pages that GPUs and networks copy through: huge pages if there are some. Forked children do
// not inherit them.
#pragma once

#include <memory>

#include "fabric/domain.h"

namespace braid::fabric::gpu {

class HostMemory {
 public:
  /// Null: there is no memory. All pages are touched.
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
