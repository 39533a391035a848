// Waits for braid's own streams, with a limit: while a kernel of the program holds a GPU and waits
// for something, no work on that GPU ends.
#pragma once

#include <chrono>
#include <thread>

#include "cuda/driver.h"

namespace braid::cuda {

/// An empty launch takes microseconds. If it has not run after this time, the program holds the
/// GPU, and braid leaves it alone.
inline constexpr std::chrono::seconds kHeldAfter{10};

/// CUDA_SUCCESS if the stream is empty, CUDA_ERROR_NOT_READY at the deadline. The stream's context
/// must be current.
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
