// Kernels that read a KV cache, one behind the other, and what a rotation beside them costs them.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/kv/contenders.h"

namespace braid::bench {

class Decoding {
 public:
  /// Each kernel reads so many bytes.
  Decoding(const Gpu& gpu, uint64_t size_bytes);
  ~Decoding();

  /// Seconds of so many kernels alone.
  double alone_s(int kernels);
  struct Beside {
    double seconds = 0;
    uint64_t moved_bytes = 0;
  };
  /// The same while the cache exchanges its groups without pause.
  Beside beside(int kernels, Contender& rotation);

 private:
  void launch(int kernels);
  double elapsed_s() const;

  const Gpu& gpu_;
  const uint64_t size_bytes_;
  DeviceMemory memory_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
  unsigned blocks_ = 1;
};

}  // namespace braid::bench
