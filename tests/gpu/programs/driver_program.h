// For programs of the driver API: calls that must succeed, GPUs, memory, and the two plain copies.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <vector>

#include "program.h"

namespace program {

inline void must(CUresult result, const char* call, int line) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  fail("line " + std::to_string(line) + ": " + call + ": " + (name != nullptr ? name : "?"));
}
#define MUST(call) ::program::must(call, #call, __LINE__)

/// Starts the driver; the primary context of every GPU, up to `most`. GPU 0's is current.
inline std::vector<CUcontext> use_gpus(int most = 4) {
  int count = 0;
  MUST(cuInit(0));
  MUST(cuDeviceGetCount(&count));
  std::vector<CUcontext> contexts(static_cast<size_t>(std::min(count, most)));
  for (size_t gpu = 0; gpu < contexts.size(); ++gpu)
    MUST(cuDevicePrimaryCtxRetain(&contexts[gpu], static_cast<CUdevice>(gpu)));
  require(!contexts.empty(), "no GPU");
  MUST(cuCtxSetCurrent(contexts[0]));
  return contexts;
}

inline unsigned char* pin(size_t size_bytes) {
  void* memory = nullptr;
  MUST(cuMemHostAlloc(&memory, size_bytes, CU_MEMHOSTALLOC_PORTABLE));
  return static_cast<unsigned char*>(memory);
}

inline unsigned char* pin(size_t size_bytes, const Pattern& pattern) {
  unsigned char* memory = pin(size_bytes);
  pattern.fill(memory, size_bytes);
  return memory;
}

/// A word that holds streams back (gate.h); closed.
inline volatile uint32_t* new_gate() {
  auto* word = reinterpret_cast<volatile uint32_t*>(pin(sizeof(uint32_t)));
  store(word, 0);
  return word;
}

inline CUdeviceptr allocate(size_t size_bytes) {
  CUdeviceptr memory = 0;
  MUST(cuMemAlloc(&memory, size_bytes));
  return memory;
}

inline CUstream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
  CUstream stream = nullptr;
  MUST(cuStreamCreate(&stream, flags));
  return stream;
}

inline CUevent new_event() {
  CUevent event = nullptr;
  MUST(cuEventCreate(&event, CU_EVENT_DEFAULT));
  return event;
}

inline void to_device(CUdeviceptr to, const void* from, size_t size_bytes, CUstream stream,
                      Kind kind = Kind::kPinned) {
  MUST(cuMemcpyHtoDAsync(to, from, size_bytes, stream));
  copied(kind, size_bytes);
}

inline void to_host(void* to, CUdeviceptr from, size_t size_bytes, CUstream stream,
                    Kind kind = Kind::kPinned) {
  MUST(cuMemcpyDtoHAsync(to, from, size_bytes, stream));
  copied(kind, size_bytes);
}

/// Where a copy comes from, where it goes, and where it lands when it comes back.
struct TripBuffers {
  unsigned char* source;
  unsigned char* landing;
  CUdeviceptr device;
};

inline TripBuffers make_buffers(size_t size_bytes, const Pattern& pattern) {
  return {pin(size_bytes, pattern), pin(size_bytes), allocate(size_bytes)};
}

inline void there_and_back(const TripBuffers& buffers, size_t size_bytes, CUstream stream) {
  std::memset(buffers.landing, 0, size_bytes);
  to_device(buffers.device, buffers.source, size_bytes, stream);
  to_host(buffers.landing, buffers.device, size_bytes, stream);
}

inline void free_buffers(const TripBuffers& buffers) {
  MUST(cuMemFree(buffers.device));
  MUST(cuMemFreeHost(buffers.source));
  MUST(cuMemFreeHost(buffers.landing));
}

/// Looks at device memory in pieces, which travel natively.
inline void check_device(CUdeviceptr memory, size_t size_bytes, const Pattern& pattern,
                         const std::string& what) {
  std::vector<unsigned char> piece(kPieceBytes);
  for (size_t at = 0; at < size_bytes; at += kPieceBytes) {
    const size_t length = std::min(kPieceBytes, size_bytes - at);
    MUST(cuMemcpyDtoH(piece.data(), memory + at, length));
    copied(Kind::kSmall, length);
    pattern.check(piece.data(), length, what, at);
  }
}

}  // namespace program
