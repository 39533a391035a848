// One GPU as the example uses it: a context, a stream, memory, and the decoder's kernel.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

#include "decoder.h"

namespace rotate {

[[noreturn]] void die(const std::string& why);

class Gpu {
 public:
  Gpu();  ///< the first one, in its primary context
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  CUcontext context() const { return context_; }
  CUstream stream() const { return stream_; }

  CUdeviceptr allocate(size_t size_bytes);
  void free(CUdeviceptr memory);
  /// Pinned, at the same address for the GPU. Lives as long as this.
  void* allocate_host(size_t size_bytes);

  /// Puts a step into the stream. `args.requests` is pinned memory.
  void launch(const StepArgs& args);
  void synchronize();

 private:
  void load_kernel();

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  std::vector<void*> host_memory_;
};

}  // namespace rotate
