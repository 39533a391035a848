// The memory that a shm endpoint of libfabric shares with other processes: a file in /dev/shm,
// which has the endpoint's name.
//
// Source: struct smr_region (include/ofi_shm.h) of libfabric 1.17. What needs this layout is used
// with this version alone.
#pragma once

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "fabric/domain.h"

namespace braid::fabric::ofi {

/// Its front.
struct RegionHead {
  enum Copies : uint8_t { kNotKnown, kAllowed, kRefused };  // SMR_CMA_CAP_NA, ...
  uint8_t version, reserved;
  uint16_t flags;
  int32_t process;
  Copies copies, copies_to_itself;
  uint32_t buffers_max;
  RegionHead* base;  ///< where its own process has mapped it
  pthread_spinlock_t lock;
  int32_t signal;
  void* map;
  uint64_t size_bytes;
  std::array<std::byte, 256 - 48> further;  // and the data that these fields refer to
};
static_assert(sizeof(RegionHead) == 256 && offsetof(RegionHead, process) == 4 &&
              offsetof(RegionHead, base) == 16 && offsetof(RegionHead, lock) == 24 &&
              offsetof(RegionHead, size_bytes) == 40);

/// Of an endpoint of this process.
Result<RegionHead> read_region(Bytes endpoint);
/// The same of an open file. False: it holds no whole region.
bool read_region(int file, RegionHead& head);

}  // namespace braid::fabric::ofi
