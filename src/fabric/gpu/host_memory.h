// Host pages that GPUs and networks copy through (host/huge_pages.h).
#pragma once

#include <memory>
#include <utility>

#include "fabric/domain.h"
#include "host/huge_pages.h"

namespace braid::fabric::gpu {

class HostMemory {
 public:
  /// Null: there is no memory. All pages are touched.
  static std::shared_ptr<HostMemory> open(size_t size_bytes);
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  MutableBytes bytes() const { return pages_.bytes(); }

 private:
  explicit HostMemory(HugePages pages) : pages_(std::move(pages)) {}

  HugePages pages_;
};

}  // namespace braid::fabric::gpu
