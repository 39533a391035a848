// Memory of one GPU that several GPUs read and write. It is mapped for them (virtual memory
// management), so it belongs to no context. Allocating it needs no context's lock, and waits for no
// stream.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "cuda/driver.h"

namespace braid::cuda {

class SharedMemory {
 public:
  /// Allocates on `gpu`, for it and `others` (CUDA ordinals), a multiple of 2 MiB. The current
  /// context, whose GPU must be one of them, zeroes the memory. `what` names it in errors.
  static Result<std::unique_ptr<SharedMemory>> open(const Driver& driver, int gpu,
                                                    std::span<const int> others, size_t size_bytes,
                                                    const std::string& what);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  CUdeviceptr address() const { return address_; }

  /// The memory may still be in use: it stays for the life of the process.
  void abandon() { abandoned_ = true; }

 private:
  explicit SharedMemory(const Driver& driver) : driver_(driver) {}
  CUresult allocate(int gpu, std::span<const int> others, size_t size_bytes);

  const Driver& driver_;
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr address_ = 0;
  size_t size_bytes_ = 0;
  bool is_mapped_ = false;
  bool abandoned_ = false;
};

}  // namespace braid::cuda
