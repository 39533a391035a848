// The program's stream, told apart as the driver does: the per-thread default stream is another
// stream in every thread, under one handle.
#pragma once

#include <cuda.h>

namespace braid::multipath {

struct StreamKey {
  CUstream stream = nullptr;
  const void* thread = nullptr;
  bool operator==(const StreamKey&) const = default;
};

inline StreamKey stream_key(CUstream stream) {
  static thread_local const char thread_identity = 0;
  return {stream, stream == CU_STREAM_PER_THREAD ? &thread_identity : nullptr};
}

}  // namespace braid::multipath
