// Calls that CUDA calls unsafe while a graph is recorded: in the recording thread, or, if the
// recording is in Global mode, in any thread. Such a call returns an error, and the recording is
// spoilt, unless the thread is in relaxed mode (cuThreadExchangeStreamCaptureMode).
//
// Measured on 2xH200, driver 580.159, each call in a stream that was not recorded: by the recording
// thread in thread-local mode, and by another thread in global mode, with the same answers. These
// are not unsafe there, though they wait or allocate: synchronous copies and memsets, loading a
// module, making streams, events and mappings, and all calls about access to mappings. Not
// measured: cuMemAllocHost, cuMemAllocManaged, cuMemAllocPitch, cuMemAllocFromPoolAsync, calls that
// free, and cuMemPoolSetAttribute.
#pragma once

#include <string_view>

namespace braid::emulator {

/// Matches the beginning of the symbol: all versions and per-thread forms are alike.
constexpr bool is_unsafe_while_recording(std::string_view symbol) {
  struct Row {
    std::string_view beginning;
    bool is_unsafe;
  };
  constexpr Row kRows[] = {
      // For these it depends on the stream (api/pool.cpp).
      {"cuMemAllocAsync", false},
      {"cuMemAllocFromPoolAsync", false},
      {"cuMemFreeAsync", false},
      {"cuMemAlloc", true},
      {"cuMemFree", true},
      {"cuMemHostAlloc", true},
      {"cuMemHostRegister", true},
      {"cuMemHostUnregister", true},
      {"cuMemPoolGetAccess", true},
      {"cuMemPoolSetAccess", true},
      {"cuMemPoolGetAttribute", true},
      {"cuMemPoolSetAttribute", true},
      {"cuMemPoolTrimTo", true},
      {"cuStreamQuery", true},
      {"cuStreamSynchronize", true},
      {"cuEventQuery", true},
      {"cuEventSynchronize", true},
      {"cuCtxSynchronize", true},
      {"cuCtxSetLimit", true},
  };
  for (const Row& row : kRows)
    if (symbol.starts_with(row.beginning)) return row.is_unsafe;
  return false;
}

}  // namespace braid::emulator
