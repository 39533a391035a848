// Linked with CUDA's runtime: a library that reports, as a Python extension would be, and the same
// as a program.
#include <dlfcn.h>

#include "cudart_report.h"

// The calls are made here, in the module that is linked with the runtime.
extern "C" __attribute__((visibility("default"))) void report_linked(char** words) {
#define CUDART_CALL(name) [](auto... arguments) { return ::name(arguments...); },
  const Cudart cudart{CUDART_FUNCTIONS(CUDART_CALL)[](
      void** memory, size_t size_bytes){return ::cudaMalloc(memory, size_bytes);
}
}
;
#undef CUDART_CALL
report(cudart, words);
}

// A jump, where the compiler can: it is for the runtime as if this function's caller called.
extern "C" __attribute__((visibility("default"))) cudaError_t count_gpus(int* count) {
  return ::cudaGetDeviceCount(count);
}

extern "C" __attribute__((visibility("default"))) void* find_next(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  return (dlerror() != nullptr) == (found == nullptr) ? found : nullptr;
}

#ifdef CLIENT_IS_PROGRAM
int main(int, char** argv) {
  report_linked(argv + 1);
  return 0;
}
#endif
