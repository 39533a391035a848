// A gate that the CPU opens, for streams of the program's and kernels that spin
// (cuda/kernels/gate.h).
#pragma once

#include <cstring>

#include "support/server.h"

namespace braid::test {

/// Closed until the CPU says otherwise, however far the emulated server's time goes meanwhile: it
/// goes on without a process that stands still.
class Gate {
 public:
  explicit Gate(const cuda::Driver& driver) : driver_(driver), word_(driver, sizeof(uint32_t)) {
    std::memset(word_.data(), 0, sizeof(uint32_t));
  }
  CUdeviceptr address() { return reinterpret_cast<CUdeviceptr>(word_.data()); }
  void hold(CUstream stream) {
    MUST(driver_, cuStreamWaitValue32(stream, address(), kOpen, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void open() {
    const uint32_t value = kOpen;
    std::memcpy(word_.data(), &value, sizeof(value));
  }

  static constexpr uint32_t kOpen = 1;

 private:
  const cuda::Driver& driver_;
  HostBuffer word_;
};

}  // namespace braid::test
