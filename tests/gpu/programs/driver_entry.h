// For programs of CUDA's runtime that also call the driver: its entry points, by name, as libraries
// find them that are not linked with it.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include "program.h"

namespace program {

inline void* driver_symbol(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  require(library != nullptr, "there is no libcuda.so.1");
  void* const entry = dlsym(library, name);
  require(entry != nullptr, std::string("the driver has no ") + name);
  return entry;
}

inline void must(CUresult result, const char* call, int line) {
  if (result == CUDA_SUCCESS) return;
  fail("line " + std::to_string(line) + ": " + call + ": driver error " +
       std::to_string(static_cast<int>(result)));
}

// cuda.h defines names with their versions: cuMemFree is cuMemFree_v2.
#define BRAID_TEXT_OF(name) #name
#define DRIVER(function) \
  (reinterpret_cast<decltype(&function)>(::program::driver_symbol(BRAID_TEXT_OF(function))))

}  // namespace program
