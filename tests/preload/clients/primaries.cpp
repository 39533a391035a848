// Programs that count on how contexts end: primaries SCENARIO. They print what the driver answers,
// which must be the same with braid and without.
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "client.h"

namespace {

using namespace client;

constexpr size_t kSizeBytes = size_t{8} << 20;

template <typename... Arguments>
int answer(const char* symbol, Arguments... arguments) {
  return static_cast<int>(get<CUresult(Arguments...)>(symbol)(arguments...));
}

bool is_active(CUdevice device) {
  unsigned flags = 0;
  int active = -1;
  call("cuDevicePrimaryCtxGetState", device, &flags, &active);
  return active == 1;
}

void print_states(const char* when) {
  std::printf("%s:", when);
  for (CUdevice device = 0; device < 4; ++device) std::printf(" %d", is_active(device) ? 1 : 0);
  std::printf("\n");
}

void release(CUdevice device, const char* symbol = "cuDevicePrimaryCtxRelease_v2") {
  std::printf("%s(%d) = %d\n", symbol, device, answer(symbol, device));
}

struct Pinned {
  uint8_t* host = pin(kSizeBytes);
  uint8_t* back = pin(kSizeBytes);
};

// Both ways, in the current context; the memory goes back when the context does.
void copy_and_look(uint64_t seed, const Pinned& memory = {}) {
  const auto [host, back] = memory;
  Random(seed).fill(host, kSizeBytes);
  const CUdeviceptr device = allocate(kSizeBytes);
  call("cuMemcpyHtoD_v2", device, static_cast<const void*>(host), kSizeBytes);
  call("cuMemcpyDtoH_v2", static_cast<void*>(back), device, kSizeBytes);
  require(std::memcmp(host, back, kSizeBytes) == 0, "wrong bytes");
}

// Most of the GPU's memory: there is no room for it twice.
void allocate_most(CUdevice device) {
  size_t total_bytes = 0;
  call("cuDeviceTotalMem_v2", &total_bytes, device);
  CUdeviceptr memory = 0;
  std::printf("most of GPU %d: %d\n", device,
              answer("cuMemAlloc_v2", &memory, total_bytes / 10 * 6));
}

int release_ends_the_context() {
  use_gpu(0);
  print_states("retained");
  copy_and_look(1);
  print_states("copied");
  for (uint64_t round = 0; round < 3; ++round) {
    allocate_most(0);
    release(0, round == 1 ? "cuDevicePrimaryCtxRelease" : "cuDevicePrimaryCtxRelease_v2");
    print_states("released");
    std::printf("stale context: %d\n", answer("cuCtxSynchronize"));
    use_gpu(0);
    copy_and_look(2 + round);
  }
  release(0);
  release(0);  // once too often
  print_states("over");
  return 0;
}

int every_hold_counts() {
  use_gpu(0);
  use_gpu(1);
  use_gpu(1);
  copy_and_look(11);
  print_states("copied");
  release(1);
  print_states("one hold left");
  copy_and_look(12);
  release(1);
  print_states("none left");
  release(1);
  release(2);   // never retained
  release(77);  // no such device
  print_states("refused");
  use_gpu(0);
  copy_and_look(13);
  print_states("the other GPU goes on");
  return 0;
}

int reset_and_release() {
  use_gpu(0);
  copy_and_look(21);
  std::printf("reset: %d\n", answer("cuDevicePrimaryCtxReset_v2", 0));
  print_states("reset");
  release(0);
  std::printf("reset of an unused GPU: %d\n", answer("cuDevicePrimaryCtxReset_v2", 2));
  print_states("reset twice");
  use_gpu(0);
  copy_and_look(22);
  release(0);
  print_states("over");
  return 0;
}

// Pageable copies make braid hold contexts of its own accord.
int release_after_pageable() {
  use_gpu(0);
  std::vector<uint8_t> host(kSizeBytes), back(kSizeBytes);
  for (uint64_t round = 0; round < 2; ++round) {
    Random(31 + round).fill(host.data(), kSizeBytes);
    const CUdeviceptr device = allocate(kSizeBytes);
    call("cuMemcpyHtoD_v2", device, static_cast<const void*>(host.data()), kSizeBytes);
    call("cuMemcpyDtoH_v2", static_cast<void*>(back.data()), device, kSizeBytes);
    require(host == back, "wrong bytes");
    allocate_most(0);
    release(0);
    print_states("released");
    use_gpu(0);
  }
  return 0;
}

// By symbol: what cuGetProcAddress hands out under this name depends on the version asked for.
void create(CUcontext* context) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  require(library != nullptr, "no driver");
  auto* made = reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(
      dlsym(library, "cuCtxCreate_v2"));
  check(made(context, 0, 0), "cuCtxCreate_v2");
}

int detach_ends_the_context() {
  use_gpu(0);
  for (uint64_t round = 0; round < 2; ++round) {
    CUcontext own = nullptr;
    CUcontext attached = nullptr;
    create(&own);
    copy_and_look(41 + round);
    allocate_most(0);
    std::printf("attach: %d\n", answer("cuCtxAttach", &attached, 0u));
    std::printf("detach: %d\n", answer("cuCtxDetach", own));
    copy_and_look(43 + round);
    std::printf("detach: %d\n", answer("cuCtxDetach", own));
    std::printf("gone: %d\n", answer("cuCtxSetCurrent", own));
  }
  return 0;
}

// Only the thread whose current context it is may detach it.
int refused_detaching_counts_nothing() {
  use_gpu(0);
  CUcontext own = nullptr;
  create(&own);
  const Pinned memory;
  copy_and_look(51, memory);
  use_gpu(0);
  for (int i = 0; i < 2; ++i) std::printf("detach: %d\n", answer("cuCtxDetach", own));
  call("cuCtxSetCurrent", own);
  copy_and_look(52, memory);
  allocate_most(0);
  std::printf("detach: %d\n", answer("cuCtxDetach", own));
  return 0;
}

size_t free_bytes() {
  size_t free = 0;
  size_t total = 0;
  call("cuMemGetInfo_v2", &free, &total);
  return free;
}

// Another thread pins memory for the first time meanwhile: braid opens its contexts, and takes
// memory on every GPU.
int release_beside_the_first_pinning() {
  use_gpu(0);
  use_gpu(1);
  allocate_most(1);
  const size_t before = free_bytes();
  std::atomic<bool> is_pinned{false};
  std::thread pinning([&] {
    use_gpu(0);
    pin(kSizeBytes);
    is_pinned = true;
  });
  // Until the opening has come to this GPU.
  while (!is_pinned && free_bytes() == before) {
  }
  release(1);
  int granted = 0;
  do
    for (CUdevice device = 2; device < 4; ++device)  // never retained
      granted += answer("cuDevicePrimaryCtxRelease_v2", device) == CUDA_SUCCESS ? 1 : 0;
  while (!is_pinned);
  pinning.join();
  std::printf("released without a hold: %d\n", granted);
  print_states("pinned");
  use_gpu(1);
  allocate_most(1);
  use_gpu(0);
  copy_and_look(61);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, int (*)()> scenarios = {
      {"release_ends_the_context", release_ends_the_context},
      {"every_hold_counts", every_hold_counts},
      {"reset_and_release", reset_and_release},
      {"release_after_pageable", release_after_pageable},
      {"detach_ends_the_context", detach_ends_the_context},
      {"refused_detaching_counts_nothing", refused_detaching_counts_nothing},
      {"release_beside_the_first_pinning", release_beside_the_first_pinning},
  };
  require(use_lookup(argc > 2 ? argv[2] : "dlsym"), "no driver");
  const auto scenario = scenarios.find(argc > 1 ? argv[1] : "");
  require(scenario != scenarios.end(), "no such scenario");
  return scenario->second();
}
