// The copies that are under way, and whether all their bytes are right.
#pragma once

#include "scene.h"

namespace meanwhile {

enum class Direction { kToDevice, kToHost };

inline const char* name_of(Direction direction) {
  return direction == Direction::kToDevice ? "h2d" : "d2h";
}

/// Copies of pinned memory on a stream of GPU 0, half of them at a time.
class Flow {
 public:
  Flow(int copies, size_t size_bytes);

  cudaStream_t stream() const { return stream_; }
  cudaEvent_t halfway() const { return halfway_; }

  /// Makes what the copies will bring differ from what is there.
  void prepare(Direction direction);
  void enqueue_first_half(Direction direction);
  void enqueue_second_half(Direction direction);
  void finish() const;
  /// Looks at every byte that has been copied.
  void verify(Direction direction, const std::string& what);

 private:
  void enqueue(Direction direction, int from, int to);
  size_t words() const { return static_cast<size_t>(copies_) * size_bytes_ / sizeof(uint64_t); }

  int copies_;
  size_t size_bytes_;
  uint64_t seed_ = 1;  // of the bytes in host memory
  cudaStream_t stream_;
  cudaEvent_t halfway_;
  uint64_t* host_;
  uint64_t* device_;
  unsigned long long* wrong_;
};

}  // namespace meanwhile
