// Waiting for a stream of braid's own, but not for ever: the program's kernels may hold the GPU.
#pragma once

#include <chrono>
#include <thread>

#include "cuda/driver.h"

namespace braid::cuda {

/// An empty launch takes microseconds. A GPU that has not run one by then is held by the program
/// itself, and braid stays out of its way.
inline constexpr std::chrono::seconds kStartLimit{10};

/// CUDA_ERROR_NOT_READY when the stream still has work at the deadline.
inline CUresult wait_until(const Driver& driver, CUstream stream,
                           std::chrono::steady_clock::time_point deadline) {
  while (true) {
    const CUresult result = driver.cuStreamQuery(stream);
    if (result != CUDA_ERROR_NOT_READY || std::chrono::steady_clock::now() > deadline)
      return result;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace braid::cuda
