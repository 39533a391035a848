// Host memory of braid that GPUs read and write at its own address. It is mapped here and
// registered with the driver, not allocated by it. So it outlives the driver when the process
// exits, and a late kernel always finds its pages. In a forked child it is there and zero.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "cuda/driver.h"

namespace braid::cuda {

class RegisteredMemory {
 public:
  /// Maps zeroed memory and registers it in the current context, for all GPUs. `what` names it in
  /// errors.
  static Result<std::unique_ptr<RegisteredMemory>> open(const Driver& driver, uint64_t size_bytes,
                                                        const std::string& what);
  /// In the context where it was registered, or in any while that lives. If the driver refuses to
  /// unregister the memory, the pages stay mapped for ever.
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  void* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }

  /// The context is gone, and its registration too; the pages stay mapped for ever.
  void abandon() { abandoned_ = true; }

 private:
  RegisteredMemory(const Driver& driver, uint64_t size_bytes)
      : driver_(driver), size_bytes_(size_bytes) {}
  Status map(const std::string& what);

  const Driver& driver_;
  uint64_t size_bytes_;
  void* data_ = nullptr;
  bool registered_ = false;
  bool abandoned_ = false;
};

}  // namespace braid::cuda
