// Another preloaded library beside braid's: it interposes dlsym and getppid, and finds what follows
// itself with RTLD_NEXT, as such libraries do. It says on exit how often it was asked.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace {

int lookups = 0;
int parents = 0;

struct AtExit {
  ~AtExit() { std::printf("beside: %d lookups, %d parents\n", lookups > 0, parents); }
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
