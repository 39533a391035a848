#include "loader/libc_dlsym.h"

#include <dlfcn.h>

#include <atomic>
#include <initializer_list>

namespace braid::loader {
namespace {

using DlsymFunction = void* (*)(void* handle, const char* name);

// It may be called before any constructor has run, so it is found at first use; two threads that
// race store the same value.
constinit std::atomic<DlsymFunction> libc_function{nullptr};

DlsymFunction libc_dlsym_function() noexcept {
  DlsymFunction found = libc_function.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  // glibc 2.34 moved dlsym into libc; the first version's name depends on the architecture.
  for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5"}) {
    found = reinterpret_cast<DlsymFunction>(dlvsym(RTLD_NEXT, "dlsym", version));
    if (found == nullptr) continue;
    libc_function.store(found, std::memory_order_release);
    return found;
  }
  return nullptr;
}

}  // namespace

void* libc_dlsym(void* handle, const char* name) noexcept {
  const DlsymFunction real = libc_dlsym_function();
  return real == nullptr ? nullptr : real(handle, name);
}

}  // namespace braid::loader
