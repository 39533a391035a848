#include "cuda/registered_memory.h"

#include <sys/mman.h>

#include "base/try.h"
#include "cuda/relaxed_capture.h"

namespace braid::cuda {

Result<std::unique_ptr<RegisteredMemory>> RegisteredMemory::open(const Driver& driver,
                                                                 uint64_t size_bytes,
                                                                 const std::string& what) {
  std::unique_ptr<RegisteredMemory> memory(new RegisteredMemory(driver, size_bytes));
  BRAID_TRY(memory->map(what));
  return memory;
}

Status RegisteredMemory::map(const std::string& what) {
  void* pages =
      mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return Status::error("no memory for " + what);
  data_ = pages;
  // GPUs write these pages, which must stay the parent's after a fork. A child that looks at a word
  // reads 0.
  madvise(data_, size_bytes_, MADV_WIPEONFORK);
  BRAID_TRY(driver_.check(
      driver_.cuMemHostRegister(data_, size_bytes_,
                                CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
      "registering " + what));
  registered_ = true;
  CUdeviceptr mapped = 0;
  BRAID_TRY(driver_.check(driver_.cuMemHostGetDevicePointer(&mapped, data_, 0), "mapping " + what));
  if (mapped != reinterpret_cast<CUdeviceptr>(data_))
    return Status::error("this GPU cannot use host addresses of registered memory");
  return {};
}

// What the driver keeps registered stays mapped: other memory that came to these addresses would be
// taken for it, and copied to and from pages that are gone.
RegisteredMemory::~RegisteredMemory() {
  if (abandoned_ || data_ == nullptr) return;
  if (registered_) {
    const RelaxedCapture relaxed(driver_);
    if (driver_.cuMemHostUnregister(data_) != CUDA_SUCCESS) return;
  }
  munmap(data_, size_bytes_);
}

}  // namespace braid::cuda
