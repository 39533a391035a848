// Code that is no part of the program: PTX, which the driver compiles, and CUDA C++, which NVRTC
// compiles where it is installed.
#pragma once

#include "scene.h"

namespace meanwhile {

inline constexpr char kAddOnePtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 words)
{
  .reg .b64 %address;
  .reg .b32 %before;
  ld.param.u64 %address, [words];
  cvta.to.global.u64 %address, %address;
  atom.global.add.u32 %before, [%address], 1;
  ret;
}
)";

inline void* open_compiler() {
  for (const char* name :
       {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"}) {
    if (void* library = dlopen(name, RTLD_NOW)) return library;
  }
  return nullptr;
}

/// Machine code for a GPU, whose kernel `add_one` is new each time; "": there is no NVRTC.
inline std::string compile_add_one(int gpu) {
  static void* const library = open_compiler();
  if (library == nullptr) return "";
  const auto create =
      reinterpret_cast<int (*)(void**, const char*, const char*, int, void*, void*)>(
          dlsym(library, "nvrtcCreateProgram"));
  const auto compile = reinterpret_cast<int (*)(void*, int, const char* const*)>(
      dlsym(library, "nvrtcCompileProgram"));
  const auto size_of =
      reinterpret_cast<int (*)(void*, size_t*)>(dlsym(library, "nvrtcGetCUBINSize"));
  const auto code_of = reinterpret_cast<int (*)(void*, char*)>(dlsym(library, "nvrtcGetCUBIN"));
  require(create && compile && size_of && code_of, "NVRTC lacks an entry point");
  static int times = 0;
  const std::string source = "__device__ int turn = " + std::to_string(++times) +
                             "; extern \"C\" __global__ void add_one(unsigned* words) "
                             "{ atomicAdd(words, turn > 0 ? 1u : 2u); }";
  int major = 0, minor = 0;
  MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu));
  MUST(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu));
  const std::string target = "--gpu-architecture=sm_" + std::to_string(10 * major + minor);
  const char* const options[] = {target.c_str()};
  void* program = nullptr;
  size_t size_bytes = 0;
  require(create(&program, source.c_str(), "add_one.cu", 0, nullptr, nullptr) == 0 &&
              compile(program, 1, options) == 0 && size_of(program, &size_bytes) == 0,
          "NVRTC does not compile");
  std::string code(size_bytes, '\0');
  require(code_of(program, code.data()) == 0, "NVRTC has no code");
  return code;
}

}  // namespace meanwhile
