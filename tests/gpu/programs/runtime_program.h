// For programs of CUDA's runtime: calls that must succeed, memory, and the two plain copies.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "batch.h"
#include "program.h"

namespace program {

inline void must(cudaError_t result, const char* call, int line) {
  if (result == cudaSuccess) return;
  fail("line " + std::to_string(line) + ": " + call + ": " + cudaGetErrorName(result));
}
#define MUST(call) ::program::must(call, #call, __LINE__)

inline unsigned char* pin(size_t size_bytes) {
  void* memory = nullptr;
  MUST(cudaMallocHost(&memory, size_bytes));
  return static_cast<unsigned char*>(memory);
}

inline unsigned char* pin(size_t size_bytes, const Pattern& pattern) {
  unsigned char* memory = pin(size_bytes);
  pattern.fill(memory, size_bytes);
  return memory;
}

inline unsigned char* allocate(size_t size_bytes) {
  void* memory = nullptr;
  MUST(cudaMalloc(&memory, size_bytes));
  return static_cast<unsigned char*>(memory);
}

inline cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

inline cudaEvent_t new_event() {
  cudaEvent_t event = nullptr;
  MUST(cudaEventCreate(&event));
  return event;
}

inline void to_device(void* to, const void* from, size_t size_bytes, cudaStream_t stream,
                      Kind kind = Kind::kPinned) {
  MUST(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, stream));
  copied(kind, size_bytes);
}

inline void to_host(void* to, const void* from, size_t size_bytes, cudaStream_t stream,
                    Kind kind = Kind::kPinned) {
  MUST(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToHost, stream));
  copied(kind, size_bytes);
}

inline void copy_batch(Batch<void*>& batch, cudaStream_t stream) {
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  MUST(enqueue_batch(batch, attributes, [=](auto... parameters) {
    return cudaMemcpyBatchAsync(parameters..., stream);
  }));
}

/// Looks at device memory in pieces, which travel natively.
inline void check_device(const unsigned char* memory, size_t size_bytes, const Pattern& pattern,
                         const std::string& what) {
  std::vector<unsigned char> piece(kPieceBytes);
  for (size_t at = 0; at < size_bytes; at += kPieceBytes) {
    const size_t length = std::min(kPieceBytes, size_bytes - at);
    MUST(cudaMemcpy(piece.data(), memory + at, length, cudaMemcpyDeviceToHost));
    copied(Kind::kSmall, length);
    pattern.check(piece.data(), length, what, at);
  }
}

}  // namespace program
