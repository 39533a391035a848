// Streams, events, contexts and processes that come and go, and everything that waits.
#pragma once

#include <spawn.h>

#include "scene.h"

extern char** environ;

namespace meanwhile {

constexpr size_t kMany = 40;

inline Action create_streams(const Scene&) {
  auto streams = shared<std::vector<cudaStream_t>>();
  return {[=] {
            for (size_t count = 0; count < kMany; ++count) streams->push_back(new_stream());
          },
          [=] {
            for (const cudaStream_t stream : *streams) MUST(cudaStreamDestroy(stream));
          }};
}

inline Action destroy_streams(const Scene& scene) {
  const Action made = create_streams(scene);
  made.now();
  return {made.afterwards};
}

inline Action create_events(const Scene& scene) {
  auto events = shared<std::vector<cudaEvent_t>>();
  const cudaStream_t own = scene.own;
  return {[=] {
            for (size_t count = 0; count < kMany; ++count) {
              events->push_back(new_event());
              MUST(cudaEventRecord(events->back(), own));
              MUST(cudaEventSynchronize(events->back()));
            }
          },
          [=] {
            for (const cudaEvent_t event : *events) MUST(cudaEventDestroy(event));
          }};
}

inline Action destroy_events(const Scene& scene) {
  const Action made = create_events(scene);
  made.now();
  return {made.afterwards};
}

inline CUcontext new_context(int gpu) {
  CUcontext context = nullptr, popped = nullptr;
#if CUDA_VERSION >= 13000
  MUST(DRIVER(cuCtxCreate)(&context, nullptr, 0, gpu));
#else
  MUST(DRIVER(cuCtxCreate)(&context, 0, gpu));
#endif
  MUST(DRIVER(cuCtxPopCurrent)(&popped));
  return context;
}

inline Action create_context(const Scene& scene) {
  auto context = shared<CUcontext>();
  const int gpu = scene.gpu;
  return {[=] { *context = new_context(gpu); }, [=] { MUST(DRIVER(cuCtxDestroy)(*context)); }};
}

inline Action destroy_context(const Scene& scene) {
  const CUcontext context = new_context(scene.gpu);
  return {[=] { MUST(DRIVER(cuCtxDestroy)(context)); }};
}

inline Action retain_context(const Scene& scene) {
  const int gpu = scene.gpu;
  return {[=] {
    CUcontext context = nullptr;
    MUST(DRIVER(cuDevicePrimaryCtxRetain)(&context, gpu));
    MUST(DRIVER(cuDevicePrimaryCtxRelease)(gpu));
  }};
}

inline Action enable_peer(const Scene& scene) {
  const int peer = scene.other_gpu;
  if (peer < 0) return {[] { remark = "one GPU"; }};
  auto is_enabled = shared<bool>();
  return {[=] { *is_enabled = is_possible(cudaDeviceEnablePeerAccess(peer, 0)); },
          [=] {
            if (*is_enabled) MUST(cudaDeviceDisablePeerAccess(peer));
          }};
}

inline Action disable_peer(const Scene& scene) {
  const int peer = scene.other_gpu;
  if (peer < 0 || !is_possible(cudaDeviceEnablePeerAccess(peer, 0))) return {[] {}};
  return {[=] { MUST(cudaDeviceDisablePeerAccess(peer)); }};
}

inline Action wait_for_device(const Scene&) {
  return {[] { MUST(cudaDeviceSynchronize()); }};
}

inline Action wait_for_own_stream(const Scene& scene) {
  const cudaStream_t own = scene.own;
  return {[=] { MUST(cudaStreamSynchronize(own)); }};
}

inline Action wait_for_copies(const Scene& scene) {
  const cudaStream_t side = scene.side;
  return {[=] { MUST(cudaStreamSynchronize(side)); }};
}

inline Action wait_for_event(const Scene& scene) {
  const cudaEvent_t halfway = scene.halfway;
  return {[=] { MUST(cudaEventSynchronize(halfway)); }};
}

/// Asks again and again, without waiting in the driver.
template <typename Question>
Action ask_until_done(Question question) {
  return {[=] {
    cudaError_t answer = question();
    while (answer == cudaErrorNotReady) answer = question();
    MUST(answer);
  }};
}

inline Action ask_stream(const Scene& scene) {
  return ask_until_done([side = scene.side] { return cudaStreamQuery(side); });
}

inline Action ask_event(const Scene& scene) {
  return ask_until_done([halfway = scene.halfway] { return cudaEventQuery(halfway); });
}

inline Action stream_waits_for_event(const Scene& scene) {
  const cudaStream_t own = scene.own;
  const cudaEvent_t halfway = scene.halfway;
  return {[=] {
    MUST(cudaStreamWaitEvent(own, halfway, 0));
    MUST(cudaStreamSynchronize(own));
  }};
}

inline void CUDART_CB store_one(void* word) { store(static_cast<volatile uint32_t*>(word), 1); }

inline Action host_function(const Scene& scene) {
  auto* word = reinterpret_cast<volatile uint32_t*>(scene.pinned);
  const cudaStream_t own = scene.own;
  store(word, 0);
  return {[=] {
            MUST(cudaLaunchHostFunc(own, store_one, const_cast<uint32_t*>(word)));
            MUST(cudaStreamSynchronize(own));
          },
          [=] { require(*word == 1, "a host function has not run"); }};
}

// One stream waits for what another writes.
inline Action wait_value(const Scene& scene) {
  auto* word = reinterpret_cast<volatile uint32_t*>(scene.pinned);
  const cudaStream_t own = scene.own, second = scene.second;
  const auto address = reinterpret_cast<CUdeviceptr>(scene.pinned);
  store(word, 0);
  return {[=] {
    MUST(DRIVER(cuStreamWaitValue32)(own, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
    MUST(DRIVER(cuStreamWriteValue32)(second, address, 1, 0));
    MUST(cudaStreamSynchronize(own));
  }};
}

inline Action default_stream(const Scene& scene) {
  unsigned char* const device = scene.device;
  return {[=] {
    MUST(cudaMemsetAsync(device, 0, sizeof(unsigned), nullptr));
    launch_loaded(reinterpret_cast<unsigned*>(device), nullptr);
    MUST(cudaStreamSynchronize(nullptr));
  }};
}

inline Action fork_now(const Scene&) {
  return {[] {
    const pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) _exit(0);
    require(exit_code_of(child, "a child") == 0, "a child failed");
  }};
}

inline Action spawn_now(const Scene&) {
  return {[] {
    pid_t child = 0;
    char name[] = "true";
    char* const words[] = {name, nullptr};
    require(posix_spawnp(&child, name, nullptr, nullptr, words, environ) == 0, "posix_spawn");
    require(exit_code_of(child, "another program") == 0, "another program failed");
  }};
}

}  // namespace meanwhile
