// Which GPUs can relay for which: what the hardware allows, before any choice of the user. Asks the
// driver and keeps nothing; safe from any thread.
#pragma once

#include "cuda/driver.h"

namespace braid::multipath {

/// The relay reaches the target's memory, and with native atomics: its blocks take slice numbers
/// from a counter there. NVLink has both; over PCIe peer access the atomics are missing.
inline bool can_relay(const cuda::Driver& driver, CUdevice relay, CUdevice target) {
  int access = 0;
  int atomics = 0;
  driver.cuDeviceCanAccessPeer(&access, relay, target);
  driver.cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, relay,
                                 target);
  return relay != target && access != 0 && atomics != 0;
}

}  // namespace braid::multipath
