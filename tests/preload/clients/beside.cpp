// Another preloaded library beside braid's: it interposes dlsym, getppid and one driver function,
// and finds what follows itself with RTLD_NEXT, as such libraries do. It says on exit what it was
// asked.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace {

int lookups = 0;
int parents = 0;
int allocations = 0;

struct AtExit {
  ~AtExit() {
    std::printf("beside: %d lookups, %d parents, %d allocations\n", lookups > 0, parents,
                allocations);
  }
} at_exit;

}  // namespace

extern "C" __attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) {
  using Function = void* (*)(void*, const char*);
  static const auto next = reinterpret_cast<Function>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  ++lookups;
  return next(handle, name);
}

extern "C" __attribute__((visibility("default"))) pid_t getppid() noexcept {
  using Function = pid_t (*)();
  ++parents;
  static const auto next = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "getppid"));
  return next();
}

extern "C" __attribute__((visibility("default"))) int cuMemHostAlloc(void** memory,
                                                                     size_t size_bytes,
                                                                     unsigned flags) {
  using Function = int (*)(void**, size_t, unsigned);
  ++allocations;
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "cuMemHostAlloc"))(memory, size_bytes,
                                                                          flags);
}
