// A server that sleeps and wakes up, with a library like torch_memory_saver preloaded: its memory
// is taken away, and comes back empty at the same addresses. Every byte is looked at.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr size_t kSizeBytes = (size_t{6} << 20) + 77;
constexpr int kBuffers = 3;

void must(CUresult result, int line) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "sleeping: line %d: CUDA error %d\n", line, static_cast<int>(result));
  std::_Exit(2);
}
#define MUST(call) must(call, __LINE__)

void fill(unsigned char* to, int seed) {
  for (size_t at = 0; at < kSizeBytes; ++at)
    to[at] = static_cast<unsigned char>(at * 31 + at / 4099 + static_cast<size_t>(seed) * 7);
}

void look(CUdeviceptr device, const unsigned char* wanted) {
  constexpr size_t kPieceBytes = 512 << 10;
  std::vector<unsigned char> got(kSizeBytes);
  for (size_t at = 0; at < kSizeBytes; at += kPieceBytes)
    MUST(cuMemcpyDtoH(got.data() + at, device + at,
                      kPieceBytes < kSizeBytes - at ? kPieceBytes : kSizeBytes - at));
  if (std::memcmp(got.data(), wanted, kSizeBytes) == 0) return;
  std::fprintf(stderr, "sleeping: wrong bytes\n");
  std::_Exit(1);
}

}  // namespace

int main() {
  auto* pause = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "sleeper_pause"));
  auto* resume = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "sleeper_resume"));
  if (pause == nullptr || resume == nullptr) return 3;
  CUdevice gpu = 0;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&gpu, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, gpu));
  MUST(cuCtxSetCurrent(context));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr device[kBuffers]{};
  void* host[kBuffers]{};
  void* landing = nullptr;
  MUST(cuMemAlloc(&device[0], kSizeBytes));  // before anybody is ready, too
  for (void*& memory : host) MUST(cuMemHostAlloc(&memory, kSizeBytes, 0));
  MUST(cuMemHostAlloc(&landing, kSizeBytes, 0));
  for (int buffer = 1; buffer < kBuffers; ++buffer) MUST(cuMemAlloc(&device[buffer], kSizeBytes));
  for (int day = 0; day < 3; ++day) {
    for (int buffer = 0; buffer < kBuffers; ++buffer) {
      fill(static_cast<unsigned char*>(host[buffer]), day * kBuffers + buffer);
      MUST(cuMemcpyHtoDAsync(device[buffer], host[buffer], kSizeBytes, stream));
    }
    MUST(cuStreamSynchronize(stream));
    for (int buffer = 0; buffer < kBuffers; ++buffer) {
      look(device[buffer], static_cast<unsigned char*>(host[buffer]));
      MUST(cuMemcpyDtoHAsync(landing, device[buffer], kSizeBytes, stream));
      MUST(cuStreamSynchronize(stream));
      if (std::memcmp(landing, host[buffer], kSizeBytes) != 0) return 1;
    }
    pause();
    // Nothing is there to copy to, and every copy says so.
    if (cuMemcpyHtoD(device[0], host[0], kSizeBytes) == CUDA_SUCCESS) return 4;
    resume();
  }
  for (const CUdeviceptr memory : device) MUST(cuMemFree(memory));
  std::puts("awake");
  return 0;
}
