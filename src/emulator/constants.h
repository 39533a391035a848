// Constants of the model that a profile does not have, each with its source.
#pragma once

#include <cstdint>

namespace braid::emulator {

/// One copy between pageable host memory and a GPU, staged by the driver's CPU thread.
/// Measured on 4xH200: 10.3 GB/s, cudaMemcpy H2D from pageable memory.
inline constexpr double kPageableGbps = 10.3;

/// Copies and memsets inside one GPU's memory. Assumed: about half of an HBM3 stack's bandwidth,
/// since each byte is read and written. Nothing that braid measures depends on it.
inline constexpr double kDeviceMemoryGbps = 1500;

/// The cost of each further copy of a batch to its engine, before its bytes flow. Measured on
/// 4xH200, cuMemcpyBatchAsync of 1 GiB in 64 KB entries: 44.2 GB/s H2D and 44.3 D2H on a link of
/// 55.3, so 0.30 us an entry. Other sizes give 0.20 to 0.46. Exception: the real driver copies H2D
/// entries below 32 KB in a slower way (4.7 GB/s at 8 KB), which is not modelled.
inline constexpr double kBatchEntryUs = 0.3;

/// CU_DEVICE_ATTRIBUTE_MAX_PITCH of all GPUs that braid supports.
inline constexpr int kMaxPitchBytes = 2147483647;

/// The memory of its GPU that a context takes, without the stacks of all threads that can be
/// resident.
/// Measured on 2xH200, driver 580.159: 523.6 MiB with stacks of 1024 bytes, which are 264 MiB
/// there, and 263.6 MiB with stacks of 16 bytes, which are 4.1.
inline constexpr uint64_t kContextBytes = 272'210'329;

/// CU_LIMIT_STACK_SIZE of a new context, and the most it may be (CUDA programming guide, "Technical
/// specifications": local memory of a thread).
inline constexpr uint64_t kStackBytes = 1024;
inline constexpr uint64_t kMostStackBytes = 512 << 10;

/// CPU time of a query: a polling loop moves virtual time by this much. Assumed.
inline constexpr double kQueryUs = 0.5;

/// Threads that can be resident on one multiprocessor (CUDA programming guide, compute 8.0
/// to 10.0).
inline constexpr int kThreadsPerMultiprocessor = 2048;

inline constexpr int kDriverVersion = 13000;

/// Stream priorities: CUDA's range on all GPUs that braid supports.
inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -5;

}  // namespace braid::emulator
