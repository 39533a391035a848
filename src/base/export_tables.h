// The two of the driver's export tables (cuGetExportTable) that mark the start of CUDA's runtime
// library, by their UUIDs: the same in every runtime from 11.8 to 13.0, shared and static. NVIDIA
// does not document their contents, and nothing here relies on them.
#pragma once

#include <array>
#include <cstddef>

namespace braid {

using TableId = std::array<unsigned char, 16>;

/// The runtime's interface to the driver, which it asks for first.
inline constexpr TableId kInterfaceTable = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                            0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};

/// The self-check, which it asks for last: driver and runtime compare their lists of GPUs.
inline constexpr TableId kSelfCheckTable = {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b,
                                            0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2};

/// The emulated driver's self-check, for the double of the runtime in tests/preload/clients: the
/// driver lists its GPUs. (The real one compares hashes.)
struct EmulatedSelfCheck {
  size_t size_bytes;
  int (*gpu_count)();
  void (*gpu_uuid)(int gpu, char* uuid);  ///< 0 <= gpu < gpu_count(); 16 bytes
};

}  // namespace braid
