// The driver's entry points by name, as programs find them that are not linked with it.
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

// cuda.h defines names with their versions: cuMemFree is cuMemFree_v2.
#define BRAID_TEXT_OF(name) #name
#define DRIVER(function) \
  (reinterpret_cast<decltype(&function)>(::program::driver_symbol(BRAID_TEXT_OF(function))))

}  // namespace program
