// braid's `dlsym`: everything a program looks up passes through to the real one, as if braid were
// not there, except the table's entry points when they are the CUDA driver's.
#pragma once

namespace braid::preload {

/// glibc's own dlsym, whoever else interposes it. Null only on a C library without one.
void* libc_dlsym(void* handle, const char* name) noexcept;

}  // namespace braid::preload
