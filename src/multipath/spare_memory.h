// Registered host memory that closed targets leave to new ones. To unregister it, the driver waits
// for all work in the context where it was registered. That is a relay's context, so it would wait
// for transfers of other contexts; a program that ends one context does not wait for these.
//
// Threads: any.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "cuda/registered_memory.h"

namespace braid::multipath {

class SpareMemory {
 public:
  using Memory = std::unique_ptr<cuda::RegisteredMemory>;
  explicit SpareMemory(const cuda::Driver& driver) : driver_(driver) {}

  /// Zeroed memory: of a closed target, or registered now in the current context.
  Result<Memory> take(uint64_t size_bytes, const std::string& what);
  /// Call it when nothing uses the memory any more.
  void give_back(Memory memory);

  /// Unregisters all, in the current context.
  void clear();
  /// The memory stays registered.
  void abandon();

 private:
  const cuda::Driver& driver_;
  std::mutex mutex_;
  std::vector<Memory> memory_;  // under it
};

}  // namespace braid::multipath
