// A gate that the CPU opens, for streams of the program's and kernels that spin
// (test_kernels.h).
#pragma once

#include <atomic>

#include "support/server.h"

namespace braid::test {

/// Closed until the CPU says otherwise, however far the emulated server's time goes meanwhile: it
/// goes on without a process that stands still. Opens as it goes out of scope, so that a test which
/// ends early does not wait for the stream that it held: make it after the buffers of what it
/// holds.
class Gate {
 public:
  explicit Gate(const cuda::Driver& driver) : driver_(driver), word_(driver, sizeof(uint32_t)) {
    store(0);
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  CUdeviceptr address() { return reinterpret_cast<CUdeviceptr>(word_.data()); }
  void hold(CUstream stream) {
    MUST(driver_, cuStreamWaitValue32(stream, address(), kOpen, CU_STREAM_WAIT_VALUE_GEQ));
  }
  void open() { store(kOpen); }

  static constexpr uint32_t kOpen = 1;

 private:
  void store(uint32_t value) {
    std::atomic_ref(*reinterpret_cast<uint32_t*>(word_.data())).store(value);
  }

  const cuda::Driver& driver_;
  HostBuffer word_;
};

}  // namespace braid::test
