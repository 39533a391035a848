// A channel: a stream of braid's on a relay, with a word of host memory that says how far the
// stream has come and, if it carries copies, a buffer that staged ones pass through. A transfer has
// the channels it uses for itself, as long as it is under way: what is held back in one channel
// holds back nobody else. Only later transfers of the same stream of the program, which come after
// it anyway, may stand behind it.
//
// Not thread-safe: the relay's lock guards it, and whoever has taken it (relay.h) uses it alone.
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/driver.h"
#include "multipath/stream_key.h"

namespace braid::multipath {

/// A relay works for a transfer in at most so many channels.
inline constexpr size_t kChannelsOfRelay = 2;

struct Channel {
  int gpu = -1;  ///< the relay, a CUDA ordinal
  CUstream stream = nullptr;
  CUdeviceptr buffer = 0;      ///< 0: for kernels alone
  CUevent end = nullptr;       ///< for the gate of last resort (gate.cpp)
  uint32_t* landed = nullptr;  ///< the stream writes `issued` here behind each transfer
  uint32_t issued = 0;         ///< what it will read when all has landed
  uint32_t pending_ops = 0;    ///< at most so many operations stand in the stream
  StreamKey user;              ///< whose transfer it carried last
  bool is_acquired = false;    ///< a thread is putting work into it

  CUdeviceptr landed_address() const { return reinterpret_cast<CUdeviceptr>(landed); }

  /// Cyclic: the count wraps.
  static bool has_reached(const uint32_t* word, uint32_t wanted) {
    const uint32_t seen =
        std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(word)).load(std::memory_order_acquire);
    return static_cast<int32_t>(seen - wanted) >= 0;
  }
  /// Of one that is not taken.
  bool is_idle() const { return has_reached(landed, issued); }
};

}  // namespace braid::multipath
