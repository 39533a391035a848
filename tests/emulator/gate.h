// A word of host memory that holds streams back until it is opened.
#pragma once

#include <atomic>

#include "fixture.h"

namespace braid::emulator_test {

class Gate {
 public:
  explicit Gate(Emulated& server) : server_(server) {
    word_ = reinterpret_cast<uint32_t*>(server.pinned_memory(4));
    *word_ = 0;
  }
  void close(CUstream stream) {
    EXPECT_EQ(server_.cu.cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(word_), 1,
                                             CU_STREAM_WAIT_VALUE_GEQ),
              CUDA_SUCCESS);
  }
  uint32_t* word() const { return word_; }
  void open() { std::atomic_ref<uint32_t>(*word_).store(1); }

 private:
  Emulated& server_;
  uint32_t* word_;
};

}  // namespace braid::emulator_test
