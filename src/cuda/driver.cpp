#include "cuda/driver.h"

#include <dlfcn.h>

#include <cstring>

#include "base/try.h"

namespace braid::cuda {
namespace {

void* find(const SymbolLookup& lookup, const char* name) {
  if (void* symbol = lookup(name)) return symbol;
  // Drivers before CUDA 12.8 have only the first version, which takes the same arguments.
  if (std::strcmp(name, "cuEventElapsedTime_v2") == 0) return lookup("cuEventElapsedTime");
  return nullptr;
}

template <typename Function>
Status load(Function& function, const SymbolLookup& lookup, const char* name) {
  function = reinterpret_cast<Function>(find(lookup, name));
  if (function != nullptr) return {};
  return Status::error("the CUDA driver has no " + std::string(name),
                       "Install a driver for CUDA 12 or newer (525 or newer)");
}

// A clock that the driver's library exports. NVIDIA's exports none.
class LibraryClock final : public Clock {
 public:
  explicit LibraryClock(const SymbolLookup& lookup)
      : now_(reinterpret_cast<void (*)(uint64_t*)>(lookup("braidClockNow"))) {}

  bool is_there() const { return now_ != nullptr; }
  uint64_t now_ns() override {
    uint64_t ns = 0;
    now_(&ns);
    return ns;
  }

 private:
  void (*now_)(uint64_t*);
};

Clock* find_clock(const SymbolLookup& lookup) {
  if (!LibraryClock(lookup).is_there()) return &system_clock();
  static LibraryClock clock(lookup);  // for the life of the process, as the library
  return &clock;
}

}  // namespace

std::string Driver::describe(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr)
    return "CUDA error " + std::to_string(static_cast<int>(result));
  cuGetErrorString(result, &text);
  return std::string(name) + (text != nullptr ? " (" + std::string(text) + ")" : "");
}

Status Driver::check(CUresult result, const std::string& doing) const {
  return result == CUDA_SUCCESS ? Status()
                                : Status::error(doing + ": " + describe(result), {}, result);
}

Result<Driver> load_driver(const SymbolLookup& lookup) {
  Driver driver;
// Two steps, so that the name is expanded to its versioned symbol before it becomes text.
#define BRAID_TEXT(symbol) #symbol
#define BRAID_LOAD(name) BRAID_TRY(load(driver.name, lookup, BRAID_TEXT(name)));
  BRAID_DRIVER_FUNCTIONS(BRAID_LOAD)
#undef BRAID_LOAD
#undef BRAID_TEXT
  BRAID_TRY(load(driver.create_context, lookup, "cuCtxCreate_v2"));
  driver.clock = find_clock(lookup);
  driver.copy_batch = reinterpret_cast<decltype(driver.copy_batch)>(lookup("cuMemcpyBatchAsync"));
  driver.debugger_session = static_cast<const volatile uint32_t*>(lookup("cudbgSessionId"));
  return driver;
}

Result<Driver> open_driver(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Status::error("no CUDA driver: " + std::string(dlerror()),
                         "Install the NVIDIA driver, or use an emulated server (--server h20x8)");
  return load_driver([handle](const char* name) { return dlsym(handle, name); });
}

}  // namespace braid::cuda
