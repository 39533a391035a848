// The C library's own dlsym, in a process where braid's stands before it.
#pragma once

namespace braid::loader {

/// glibc's own dlsym, whoever else interposes it. Null only on a C library without one.
void* libc_dlsym(void* handle, const char* name) noexcept;

}  // namespace braid::loader
