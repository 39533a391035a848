// Loading code, launching it, graphs, and what tools do to a running program.
#pragma once

#include <cuda_profiler_api.h>

#include "runtime_compiler.h"
#include "scene.h"

// meanwhile/lazy.cu, built for each of these.
#define BRAID_LAZY(kind)                                      \
  cudaError_t lazy_##kind##_0(unsigned* words, cudaStream_t); \
  cudaError_t lazy_##kind##_1(unsigned* words, cudaStream_t); \
  cudaError_t lazy_##kind##_2(unsigned* words, cudaStream_t); \
  cudaError_t lazy_##kind##_3(unsigned* words, cudaStream_t)
BRAID_LAZY(kernel);
BRAID_LAZY(stack);
BRAID_LAZY(symbol);
#undef BRAID_LAZY

namespace meanwhile {

using Launch = cudaError_t (*)(unsigned*, cudaStream_t);

/// `launch` adds 1 to the first word of the scratch memory, which was 0.
inline Action launching(const Scene& scene, Launch launch, const char* what) {
  MUST(cudaMemset(scene.device, 0, sizeof(unsigned)));
  const cudaStream_t own = scene.own;
  unsigned char* const device = scene.device;
  return {[=] {
            MUST(launch(reinterpret_cast<unsigned*>(device), own));
            MUST(cudaStreamSynchronize(own));
          },
          [=] { expect_word(device, 1, what); }};
}

inline cudaError_t loaded(unsigned* words, cudaStream_t stream) {
  launch_loaded(words, stream);
  return cudaGetLastError();
}

inline Action launch_loaded_kernel(const Scene& scene) {
  return launching(scene, loaded, "a loaded kernel");
}

inline Action launch_lazy_kernel(const Scene& scene) {
  constexpr Launch kAll[] = {lazy_kernel_0, lazy_kernel_1, lazy_kernel_2, lazy_kernel_3};
  return launching(scene, kAll[scene.turn % 4], "a lazily loaded kernel");
}

inline Action launch_lazy_stack(const Scene& scene) {
  constexpr Launch kAll[] = {lazy_stack_0, lazy_stack_1, lazy_stack_2, lazy_stack_3};
  return launching(scene, kAll[scene.turn % 4], "a kernel with a stack");
}

inline Action copy_to_lazy_symbol(const Scene& scene) {
  constexpr Launch kAll[] = {lazy_symbol_0, lazy_symbol_1, lazy_symbol_2, lazy_symbol_3};
  return launching(scene, kAll[scene.turn % 4], "a symbol");
}

inline void launch_by_driver(CUfunction kernel, unsigned char* device, cudaStream_t own) {
  void* arguments[] = {&device};
  MUST(DRIVER(cuLaunchKernel)(kernel, 1, 1, 1, 1, 1, 1, 0, own, arguments, nullptr));
  MUST(cudaStreamSynchronize(own));
}

inline Action load_module(const Scene& scene) {
  MUST(cudaMemset(scene.device, 0, sizeof(unsigned)));
  auto module = shared<CUmodule>();
  unsigned char* const device = scene.device;
  const cudaStream_t own = scene.own;
  return {[=] {
            CUfunction kernel = nullptr;
            MUST(DRIVER(cuModuleLoadData)(module.get(), kAddOnePtx));
            MUST(DRIVER(cuModuleGetFunction)(&kernel, *module, "add_one"));
            launch_by_driver(kernel, device, own);
          },
          [=] {
            expect_word(device, 1, "a module's kernel");
            MUST(DRIVER(cuModuleUnload)(*module));
          }};
}

inline Action unload_module(const Scene& scene) {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  MUST(DRIVER(cuModuleLoadData)(&module, kAddOnePtx));
  MUST(DRIVER(cuModuleGetFunction)(&kernel, module, "add_one"));
  launch_by_driver(kernel, scene.device, scene.own);
  return {[=] { MUST(DRIVER(cuModuleUnload)(module)); }};
}

// The library is known beforehand; its code comes to the GPU with the first launch.
inline Action launch_of_library(const Scene& scene) {
  MUST(cudaMemset(scene.device, 0, sizeof(unsigned)));
  CUlibrary library = nullptr;
  MUST(DRIVER(cuLibraryLoadData)(&library, kAddOnePtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned char* const device = scene.device;
  const cudaStream_t own = scene.own;
  return {[=] {
            CUkernel kernel = nullptr;
            MUST(DRIVER(cuLibraryGetKernel)(&kernel, library, "add_one"));
            launch_by_driver(reinterpret_cast<CUfunction>(kernel), device, own);
          },
          [=] {
            expect_word(device, 1, "a library's kernel");
            MUST(DRIVER(cuLibraryUnload)(library));
          }};
}

inline Action compile_and_launch(const Scene& scene) {
  MUST(cudaMemset(scene.device, 0, sizeof(unsigned)));
  auto code = shared<std::string>(compile_add_one(scene.gpu));
  if (code->empty()) return {[] { remark = "no NVRTC"; }};
  auto module = shared<CUmodule>();
  unsigned char* const device = scene.device;
  const cudaStream_t own = scene.own;
  return {[=] {
            CUfunction kernel = nullptr;
            MUST(DRIVER(cuModuleLoadData)(module.get(), code->data()));
            MUST(DRIVER(cuModuleGetFunction)(&kernel, *module, "add_one"));
            launch_by_driver(kernel, device, own);
          },
          [=] {
            expect_word(device, 1, "a compiled kernel");
            MUST(DRIVER(cuModuleUnload)(*module));
          }};
}

inline Action change_stack_limit(const Scene& scene) {
  const size_t wanted = size_t{8192} + 4096 * static_cast<size_t>(scene.turn);
  auto before = shared<size_t>();
  MUST(cudaDeviceGetLimit(before.get(), cudaLimitStackSize));
  return {[=] { MUST(cudaDeviceSetLimit(cudaLimitStackSize, wanted)); },
          [=] { MUST(cudaDeviceSetLimit(cudaLimitStackSize, *before)); }};
}

/// A kernel, a memset and a pinned copy; recorded, but not launched.
inline cudaGraphExec_t record(const Scene& scene) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  MUST(cudaStreamBeginCapture(scene.own, cudaStreamCaptureModeGlobal));
  MUST(cudaMemsetAsync(scene.device, 0, kScratchBytes, scene.own));
  launch_loaded(reinterpret_cast<unsigned*>(scene.device), scene.own);
  MUST(cudaMemcpyAsync(scene.pinned, scene.device, kScratchBytes, cudaMemcpyDeviceToHost,
                       scene.own));
  MUST(cudaStreamEndCapture(scene.own, &graph));
  MUST(cudaGraphInstantiate(&executable, graph, 0));
  MUST(cudaGraphDestroy(graph));
  return executable;
}

inline void expect_recorded(const unsigned char* pinned) {
  unsigned found = 0;
  std::memcpy(&found, pinned, sizeof found);
  require(found == 1, "a graph's copy is wrong");
  for (size_t at = sizeof found; at < kScratchBytes; ++at)
    require(pinned[at] == 0, "a graph's bytes are wrong");
}

inline Action graph_whole(const Scene& scene) {
  auto executable = shared<cudaGraphExec_t>();
  return {[=] {
            *executable = record(scene);
            MUST(cudaGraphLaunch(*executable, scene.own));
            MUST(cudaStreamSynchronize(scene.own));
          },
          [=] {
            expect_recorded(scene.pinned);
            MUST(cudaGraphExecDestroy(*executable));
          }};
}

inline Action graph_launch(const Scene& scene) {
  const cudaGraphExec_t executable = record(scene);
  return {[=] {
            MUST(cudaGraphLaunch(executable, scene.own));
            MUST(cudaStreamSynchronize(scene.own));
          },
          [=] {
            expect_recorded(scene.pinned);
            MUST(cudaGraphExecDestroy(executable));
          }};
}

inline Action graph_destroy(const Scene& scene) {
  const cudaGraphExec_t executable = record(scene);
  MUST(cudaGraphLaunch(executable, scene.own));
  MUST(cudaStreamSynchronize(scene.own));
  return {[=] { MUST(cudaGraphExecDestroy(executable)); }};
}

// Where no profiler listens they do little; the calls are the driver's all the same.
inline Action profiler(const Scene&) {
  return {[] {
    (void)is_possible(cudaProfilerStart());
    (void)is_possible(cudaProfilerStop());
  }};
}

}  // namespace meanwhile
