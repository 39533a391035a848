// A channel: a stream of braid's on a relay, with a word of host memory that tells how far the
// stream has come, and, for copies, a buffer that staged bytes pass through. A transfer has its
// channels for itself while it is under way, so a blocked channel blocks no other transfer. Only
// later transfers of the same stream of the program may stand behind it in the channel: they come
// after it anyway.
//
// Not thread-safe: the relay's lock guards a channel; the thread that has acquired it (relay.h)
// uses it alone.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "cuda/driver.h"
#include "multipath/stream_key.h"

namespace braid::multipath {

/// A relay works for a transfer in at most so many channels.
inline constexpr size_t kChannelsOfPath = 2;

/// More transfers than may be under way in a channel (kMostOfOneStream in transfer_state.h).
inline constexpr uint32_t kTransfersOfChannel = 256;

struct Channel {
  int gpu = -1;  ///< the relay, a CUDA ordinal
  CUstream stream = nullptr;
  CUdeviceptr buffer = 0;      ///< 0: the channel carries kernels alone
  CUevent end = nullptr;       ///< for the gate of last resort (gate.cpp)
  uint32_t* landed = nullptr;  ///< the stream writes `issued` here behind each transfer
  uint32_t issued = 0;         ///< the value of the word when everything has landed
  uint32_t ops = 0;            ///< operations ever put into the stream; wraps
  /// What `ops` was when the word was given each of its last values.
  std::array<uint32_t, kTransfersOfChannel> ops_at{};
  StreamKey user;            ///< the stream of the last transfer
  bool is_acquired = false;  ///< a thread is putting work into it

  CUdeviceptr landed_address() const { return reinterpret_cast<CUdeviceptr>(landed); }

  /// The count wraps, so the comparison is cyclic.
  static bool has_reached(const uint32_t* word, uint32_t wanted) {
    const uint32_t seen =
        std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(word)).load(std::memory_order_acquire);
    return static_cast<int32_t>(seen - wanted) >= 0;
  }
  /// True if nothing is under way. For a channel that is not acquired.
  bool is_idle() const { return has_reached(landed, issued); }

  /// An upper bound of the operations that have not ended. For a channel that is not acquired.
  uint32_t pending_ops() const {
    const uint32_t seen = std::atomic_ref<uint32_t>(*landed).load(std::memory_order_acquire);
    const uint32_t under_way = issued - seen;
    if (under_way == 0) return 0;  // also if the driver has refused the last words
    if (under_way >= kTransfersOfChannel) return UINT32_MAX;
    return ops - ops_at[seen % kTransfersOfChannel];
  }
  /// Behind the operation that gives the word its next value.
  void note_issued() {
    ++issued;
    ops_at[issued % kTransfersOfChannel] = ops;
  }
};

}  // namespace braid::multipath
