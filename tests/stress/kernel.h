// The programs' own kernel, for GPUs and for the emulated driver: it reads one region and changes
// another, so that a copy before or after it that runs at the wrong time is seen.
#pragma once

#include <cstdint>

namespace braid::stress {

inline constexpr const char* kMixKernelName = "stress_mix";

/// Of the words that lie kMixStrideBytes apart: adds to each word of `to` a function of the one of
/// `from`. Addresses are multiples of 4.
struct MixArgs {
  uint64_t to;
  uint64_t from;
  uint64_t size_bytes;
};
inline constexpr uint64_t kMixStrideBytes = 252;

/// For cuModuleLoadData. Lives as long as the process.
const void* mix_kernel_image(bool is_emulated);

}  // namespace braid::stress
