// Whether /dev/shm has room for rails over shm. Where libfabric's shm finds too little, it says
// that it is not there at all.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace braid::fabric::ofi {

struct ShmRoom {
  bool is_there = false;
  uint64_t free_mib = 0;
  uint64_t wanted_mib = 0;  ///< what shm wants to be free, by the CPUs of the host
};
ShmRoom shm_room();
/// Whether rails over shm may have several endpoints. Each has files there.
bool is_ample(const ShmRoom& room);
/// An error says what /dev/shm lacks, without its name.
Status check(const ShmRoom& room);

}  // namespace braid::fabric::ofi
