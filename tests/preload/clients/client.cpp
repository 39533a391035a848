#include "client.h"

#include <algorithm>
#include <cstring>

namespace client {
namespace {

constexpr size_t kPieceBytes = 512 << 10;

}  // namespace

void Random::fill(uint8_t* to, size_t size_bytes) {
  for (size_t at = 0; at < size_bytes; at += sizeof(uint64_t)) {
    const uint64_t word = next();
    std::memcpy(to + at, &word, std::min(sizeof word, size_bytes - at));
  }
}

CUcontext use_gpu(int device) {
  CUdevice handle = 0;
  CUcontext context = nullptr;
  call("cuInit", 0u);
  call("cuDeviceGet", &handle, device);
  call("cuDevicePrimaryCtxRetain", &context, handle);
  call("cuCtxSetCurrent", context);
  return context;
}

uint8_t* pin(size_t size_bytes) {
  void* memory = nullptr;
  call("cuMemHostAlloc", &memory, size_bytes, static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE));
  return static_cast<uint8_t*>(memory);
}

CUdeviceptr allocate(size_t size_bytes) {
  CUdeviceptr memory = 0;
  call("cuMemAlloc_v2", &memory, size_bytes);
  return memory;
}

void write_in_pieces(CUdeviceptr to, const uint8_t* from, size_t size_bytes) {
  for (size_t at = 0; at < size_bytes; at += kPieceBytes)
    call("cuMemcpyHtoD_v2", to + at, static_cast<const void*>(from + at),
         std::min(kPieceBytes, size_bytes - at));
}

void read_in_pieces(uint8_t* to, CUdeviceptr from, size_t size_bytes) {
  for (size_t at = 0; at < size_bytes; at += kPieceBytes)
    call("cuMemcpyDtoH_v2", static_cast<void*>(to + at), from + at,
         std::min(kPieceBytes, size_bytes - at));
}

}  // namespace client
