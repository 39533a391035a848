// Waits for braid's own streams, but not for ever: a GPU that the program itself holds, with a
// kernel that waits for something, ends no work of anybody's.
#pragma once

#include <chrono>
#include <thread>

#include "cuda/driver.h"

namespace braid::cuda {

/// An empty launch takes microseconds. A GPU that has not run one by then is held by the program
/// itself, and braid stays out of its way.
inline constexpr std::chrono::seconds kHeldAfter{10};

/// CUDA_SUCCESS when the stream has nothing left, CUDA_ERROR_NOT_READY at the deadline. The
/// stream's context must be current.
inline CUresult wait_until_idle(const Driver& driver, CUstream stream,
                                std::chrono::steady_clock::time_point deadline) {
  while (true) {
    const CUresult result = driver.cuStreamQuery(stream);
    if (result != CUDA_ERROR_NOT_READY || std::chrono::steady_clock::now() > deadline)
      return result;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace braid::cuda
