#include "fabric/gpu/process_driver.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <mutex>

namespace braid::fabric::gpu {

const cuda::Driver* process_driver() {
  static std::atomic<const cuda::Driver*> found{nullptr};
  if (const cuda::Driver* driver = found.load(std::memory_order_acquire)) return driver;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (const cuda::Driver* driver = found.load(std::memory_order_acquire)) return driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);  // stays: CUDA is never unloaded
  if (library == nullptr) return nullptr;
  const Result<cuda::Driver> loaded =
      cuda::load_driver([library](const char* name) { return dlsym(library, name); });
  if (!loaded.ok()) return nullptr;
  found.store(std::make_unique<cuda::Driver>(loaded.value()).release(), std::memory_order_release);
  return found.load(std::memory_order_acquire);
}

}  // namespace braid::fabric::gpu
