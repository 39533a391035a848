// A kernel that reads memory as decoding reads a KV cache: all of it once, as fast as it comes. For
// GPUs, and as a twin for the emulated server.
#pragma once

#include <cstdint>

namespace braid::bench {

inline constexpr const char* kDecodeKernelName = "rotation_decode";
inline constexpr uint32_t kDecodeThreads = 512;

/// The kernel's one argument.
struct DecodeArgs {
  uint64_t from;        ///< a multiple of 16
  uint64_t size_bytes;  ///< a multiple of 16
  uint64_t sum;         ///< uint32_t*: changed, so that the reads are not left out
};

/// For cuModuleLoadData: what GPUs load, and what the emulated driver does, where the first has no
/// function. Live as long as the process.
const void* decode_image();
const void* decode_twin_image();

}  // namespace braid::bench
