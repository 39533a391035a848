// Identifies a stream of the program as the driver does. All default streams have the same handle,
// but each context has its own; the per-thread default stream also differs by thread.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

namespace braid::multipath {

struct StreamKey {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  uint64_t thread = 0;  ///< of a per-thread default stream
  bool operator==(const StreamKey&) const = default;
};

/// A number that no other thread has or has had. (Addresses of threads are reused.)
inline uint64_t thread_number() {
  static std::atomic<uint64_t> threads = 0;
  static thread_local const uint64_t number = ++threads;
  return number;
}

inline StreamKey stream_key(CUcontext context, CUstream stream) {
  return {context, stream, stream == CU_STREAM_PER_THREAD ? thread_number() : 0};
}

}  // namespace braid::multipath
