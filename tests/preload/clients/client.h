// What the clients share: calls that must succeed, random bytes, and one GPU set up. The clients
// are driver-API programs that know nothing of braid.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "lookup.h"

namespace client {

inline void check(CUresult result, const char* doing) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "client: %s: CUDA error %d\n", doing, static_cast<int>(result));
  std::_Exit(2);
}

/// Calls the driver's `symbol` and ends the process unless it succeeds.
template <typename... Arguments>
void call(const char* symbol, Arguments... arguments) {
  check(get<CUresult(Arguments...)>(symbol)(arguments...), symbol);
}

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "client: %s\n", what);
  std::_Exit(1);
}

/// xorshift: as fast as memory, the same bytes for the same seed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  void fill(uint8_t* to, size_t size_bytes);

 private:
  uint64_t state_;
};

/// Starts the driver and makes the primary context of `device` current.
CUcontext use_gpu(int device);

/// Pinned memory by cuMemHostAlloc.
uint8_t* pin(size_t size_bytes);

CUdeviceptr allocate(size_t size_bytes);

/// Moves bytes in pieces far below any threshold, so that they travel natively.
void write_in_pieces(CUdeviceptr to, const uint8_t* from, size_t size_bytes);
void read_in_pieces(uint8_t* to, CUdeviceptr from, size_t size_bytes);

}  // namespace client
