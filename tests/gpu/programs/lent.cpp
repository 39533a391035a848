// A program that was given one GPU, opens the driver by name and asks it everything it can: it must
// hear of that GPU only, and its copies must be right.
//   lent SIZE_BYTES
#include <cuda.h>
#include <dlfcn.h>

#include "program.h"

namespace {

using namespace program;

void* driver() {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  require(library != nullptr, "no libcuda.so.1");
  return library;
}

template <typename... Arguments>
CUresult ask(const char* symbol, Arguments... arguments) {
  void* function = dlsym(driver(), symbol);
  require(function != nullptr, std::string(symbol) + " is not in the driver");
  return reinterpret_cast<CUresult (*)(Arguments...)>(function)(arguments...);
}

template <typename... Arguments>
void call(const char* symbol, Arguments... arguments) {
  const CUresult result = ask(symbol, arguments...);
  require(result == CUDA_SUCCESS, std::string(symbol) + ": " + std::to_string(result));
}

void print_gpus() {
  int count = 0;
  call("cuDeviceGetCount", &count);
  std::printf("%d GPUs\n", count);
  for (int gpu = 0; gpu < count + 2; ++gpu) {
    CUdevice device = -1;
    std::printf("GPU %d: %d", gpu, static_cast<int>(ask("cuDeviceGet", &device, gpu)));
    char name[100] = "", bus[100] = "";
    CUuuid uuid{};
    int answer = static_cast<int>(ask("cuDeviceGetName", &name[0], 100, CUdevice{gpu}));
    std::printf(" %d %s", answer, name);
    answer = static_cast<int>(ask("cuDeviceGetPCIBusId", &bus[0], 100, CUdevice{gpu}));
    std::printf(" %d %s", answer, bus);
    answer = static_cast<int>(ask("cuDeviceGetUuid_v2", &uuid, CUdevice{gpu}));
    std::printf(" %d ", answer);
    for (const char byte : uuid.bytes) std::printf("%02x", static_cast<unsigned char>(byte));
    std::printf("\n");
  }
}

void copy_and_look(size_t size_bytes) {
  const Pattern pattern(1);
  void *source = nullptr, *landing = nullptr;
  CUdeviceptr device = 0;
  CUstream stream = nullptr;
  call("cuMemHostAlloc", &source, size_bytes, 0u);
  call("cuMemHostAlloc", &landing, size_bytes, 0u);
  call("cuMemAlloc_v2", &device, size_bytes);
  call("cuStreamCreate", &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  pattern.fill(source, size_bytes);
  for (int round = 0; round < 4; ++round) {
    std::memset(landing, 0, size_bytes);
    call("cuMemcpyHtoDAsync_v2", device, static_cast<const void*>(source), size_bytes, stream);
    call("cuMemcpyDtoHAsync_v2", landing, device, size_bytes, stream);
    copied(Kind::kPinned, 2 * size_bytes, 2);
    call("cuStreamSynchronize", stream);
    pattern.check(landing, size_bytes, "a copy on the one GPU");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  CUcontext context = nullptr;
  call("cuInit", 0u);
  print_gpus();
  call("cuDevicePrimaryCtxRetain", &context, CUdevice{0});
  call("cuCtxSetCurrent", context);
  copy_and_look(size_bytes);
  print_gpus();
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::printf("CUDA_VISIBLE_DEVICES %s\n", visible != nullptr ? visible : "unset");
  print_counts();
  return 0;
}
