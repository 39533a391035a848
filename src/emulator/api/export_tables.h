// The two driver tables by which CUDA's runtime library starts, as far as the emulated driver has
// them: enough for a double of the runtime (tests/preload/clients/cudart_double.cpp) that starts as
// the real one does. NVIDIA's tables are not documented; what is in these is the emulator's own.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace braid::emulator {

/// The runtime's interface to the driver. Empty here: the real runtime needs more than this, and
/// is refused the next table that it asks for.
struct InterfaceTable {
  size_t size_bytes;
};
inline constexpr unsigned char kInterfaceId[] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                                 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};

/// The self-check: driver and runtime compare what GPUs they know of. The real one compares hashes;
/// here the driver says which it has.
struct SelfCheckTable {
  size_t size_bytes;
  int (*gpu_count)();
  CUuuid (*gpu_uuid)(int gpu);  ///< 0 <= gpu < gpu_count()
};
inline constexpr unsigned char kSelfCheckId[] = {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b,
                                                 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2};

}  // namespace braid::emulator
