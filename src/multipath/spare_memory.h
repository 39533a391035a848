// Registered host memory that targets which are gone leave to those that come. To unregister it,
// the driver waits for all that is under way in the context where it was registered. That is a
// relay's, and so for transfers of other contexts, which a program that ends one does not wait for.
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

  /// All zero; of a target that is gone, or registered now, in the current context.
  Result<Memory> take(uint64_t size_bytes, const std::string& what);
  /// Nothing uses it any more.
  void give_back(Memory memory);

  /// Unregisters all, in the current context.
  void clear();
  /// It stays registered.
  void abandon();

 private:
  const cuda::Driver& driver_;
  std::mutex mutex_;
  std::vector<Memory> memory_;  // under it
};

}  // namespace braid::multipath
