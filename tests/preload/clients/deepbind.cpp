// A library that looks into itself and what it needs before it looks into the program, as libraries
// opened with RTLD_DEEPBIND do, and a program that opens it so. Both copy and look at every byte.
//   deepbind LIBRARY
#include <cuda.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr size_t kSizeBytes = (size_t{6} << 20) + 77;

// There, and back in pieces too small for anybody but the driver.
bool copies_right(unsigned char seed) {
  constexpr size_t kPieceBytes = 512 << 10;
  CUdevice gpu = 0;
  CUcontext context = nullptr;
  CUdeviceptr device = 0;
  void* host = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&gpu, 0) != CUDA_SUCCESS ||
      cuDevicePrimaryCtxRetain(&context, gpu) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS ||
      cuMemHostAlloc(&host, kSizeBytes, 0) != CUDA_SUCCESS ||
      cuMemAlloc(&device, kSizeBytes) != CUDA_SUCCESS)
    return false;
  auto* bytes = static_cast<unsigned char*>(host);
  for (size_t at = 0; at < kSizeBytes; ++at)
    bytes[at] = static_cast<unsigned char>(at * 31 + at / 4099 + seed);
  if (cuMemcpyHtoDAsync(device, host, kSizeBytes, nullptr) != CUDA_SUCCESS ||
      cuCtxSynchronize() != CUDA_SUCCESS)
    return false;
  std::vector<unsigned char> got(kSizeBytes);
  for (size_t at = 0; at < kSizeBytes; at += kPieceBytes) {
    const size_t piece_bytes = kPieceBytes < kSizeBytes - at ? kPieceBytes : kSizeBytes - at;
    if (cuMemcpyDtoH(got.data() + at, device + at, piece_bytes) != CUDA_SUCCESS) return false;
  }
  const bool right = std::memcmp(got.data(), host, kSizeBytes) == 0;
  return cuMemFree(device) == CUDA_SUCCESS && cuMemFreeHost(host) == CUDA_SUCCESS && right;
}

}  // namespace

#ifdef CLIENT_IS_PROGRAM
int main(int argc, char** argv) {
  void* library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) : nullptr;
  if (library == nullptr) return 3;
  auto* copy = reinterpret_cast<int (*)()>(dlsym(library, "copy_by_yourself"));
  for (unsigned char round = 0; round < 3; ++round)
    if (copy == nullptr || copy() != 0 || !copies_right(round)) return 1;
  std::puts("right");
  return 0;
}
#else
extern "C" __attribute__((visibility("default"))) int copy_by_yourself() {
  return copies_right(100) ? 0 : 1;
}
#endif
