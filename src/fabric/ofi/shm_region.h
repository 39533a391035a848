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
  uint64_t shorts, longs;  // buffers: of messages up to 4 KiB, and of parts of longer ones (SAR)
  uint64_t commands_at, answers_at, shorts_at, longs_at, peers_at;
  std::array<std::byte, 256 - 104> further;  // and the data that these fields refer to
};
static_assert(sizeof(RegionHead) == 256 && offsetof(RegionHead, process) == 4 &&
              offsetof(RegionHead, base) == 16 && offsetof(RegionHead, lock) == 24 &&
              offsetof(RegionHead, size_bytes) == 40 && offsetof(RegionHead, peers_at) == 96);

/// Of an endpoint of this process.
Result<RegionHead> read_region(Bytes endpoint);
/// The same of an open file. False: it holds no whole region.
bool read_region(int file, RegionHead& head);

/// Allocates the pages of an endpoint of this process that it and its peers use: of the queues; and
/// if peers write to it, of 64 short messages and a long one. libfabric itself touches what it
/// keeps of each peer. Buffers are stacks, so only more messages at once touch further pages.
Status allocate_region(Bytes endpoint, bool is_written_to);

}  // namespace braid::fabric::ofi
