// Identifies a stream of the program as the driver does. All default streams have the same handle,
// but each context has its own; the per-thread default stream also differs by thread. A new stream
// may have the handle of one that was destroyed, and whose work is still held (2xH100, driver
// 580.159.04: so it was every time); only the driver's number of it is its own.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "cuda/driver.h"

namespace braid::multipath {

struct StreamKey {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  uint64_t number = 0;  ///< the thread's, of a per-thread default stream; else the driver's
  bool operator==(const StreamKey&) const = default;
};

/// A number that no other thread has or has had. (Addresses of threads are reused.)
inline uint64_t thread_number() {
  static std::atomic<uint64_t> threads = 0;
  static thread_local const uint64_t number = ++threads;
  return number;
}

/// Without the driver's number: for callers that need not tell a stream from an earlier one.
inline StreamKey stream_key(CUcontext context, CUstream stream) {
  return {context, stream, stream == CU_STREAM_PER_THREAD ? thread_number() : 0};
}

/// Not of a stream that records a graph: to ask for its number would spoil the graph. One that the
/// driver gives no number is like no other. Needs no context's lock (2xH100, driver 580.159.04).
inline StreamKey stream_key(const cuda::Driver& driver, CUcontext context, CUstream stream) {
  StreamKey key = stream_key(context, stream);
  if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return key;
  unsigned long long number = 0;
  if (driver.cuStreamGetId(stream, &number) != CUDA_SUCCESS) {
    static std::atomic<uint64_t> unknown = 0;
    number = ~++unknown;
  }
  key.number = number;
  return key;
}

}  // namespace braid::multipath
