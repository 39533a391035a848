// The C library's own dlsym, in a process where braid's interposes it.
#pragma once

namespace braid::loader {

/// glibc's own dlsym, even if others interpose it too. Null only on a C library without one.
void* libc_dlsym(void* handle, const char* name) noexcept;

}  // namespace braid::loader
