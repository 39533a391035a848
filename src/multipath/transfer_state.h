// Transfer states, from a pool that is allocated once. A state holds what one transfer needs for
// itself while it is under way: words that say that the program's stream has come so far (start),
// and is behind the gate (passed), the counters that its kernels share, their report, and its
// channels on relays. The GPUs write into host memory when these are free, so finding a free state
// costs plain loads, no driver call.
//
// Threads: `acquire` and functions that read all states need the owning Target's lock. A thread
// that has acquired a state uses it alone until it releases it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "cuda/kernels/pull.h"
#include "multipath/channel.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// The most transfers under way, of one stream of the program, and of all to and from a context.
/// Beyond that, copies are native: each transfer puts up to four operations into the stream, and
/// when about a thousand have not begun the driver blocks the caller.
inline constexpr int kMostOfOneStream = 128;
inline constexpr size_t kMostTransfers = 192;

inline constexpr size_t kMostChannelUses = kChannelsOfPath * cuda::kMaxPaths;

/// A transfer as its kernels see it: one contiguous range, or lists of pieces (pull.h).
struct SlicedBytes {
  uint64_t source = 0;  ///< of a contiguous range
  uint64_t destination = 0;
  uint64_t size_bytes = 0;
  uint64_t lists = 0;  ///< of a batch; else 0
  uint32_t slice_bytes = 0;
  uint32_t slice_count = 0;
  uint32_t segment_count = 0;  ///< of a batch
  bool aligned_alike = true;   ///< modulo 16: the bulk kernel can be used
};

/// A channel, and the value of its word when this transfer has landed there.
struct ChannelUse {
  Channel* channel = nullptr;
  uint32_t landed = 0;
};

struct TransferState {
  CUdeviceptr counters = 0;                ///< TransferCounters, in the target's memory
  cuda::TransferReport* report = nullptr;  ///< written by the last block to leave
  uint32_t* start = nullptr;               ///< the program's stream writes `uses` here
  uint32_t uses = 0;
  uint32_t* passed = nullptr;  ///< the stream writes `uses` here behind the gate on `counters`
  uint32_t gated = 0;          ///< the value of that word when it is behind the last gate
  uint32_t generation = 0;     ///< of its last use; its kernels have left when the report says so
  uint32_t done = 0;           ///< value of counters.done when those have landed
  bool is_acquired = false;
  bool retired = false;  ///< a block of it never came or left: never used again

  // Of its last use.
  Mover mover = Mover::kKernel;
  StreamKey user;
  uint64_t size_bytes = 0;
  uint64_t taken_ns = 0;
  double expected_us = 0;
  uint64_t begun_ns = 0;  ///< when it was first seen to have begun; 0: not yet
  std::array<ChannelUse, kMostChannelUses> channels;
  size_t channel_count = 0;
  bool unread = false;  ///< the kernels' counts have not been added up yet
  Direction direction = Direction::kHostToDevice;
  SlicedBytes bytes;
  int path_count = 0;
  std::array<int, cuda::kMaxPaths> via{};  ///< GPU by path

  CUdeviceptr start_address() const { return reinterpret_cast<CUdeviceptr>(start); }
  bool has_begun() const { return Channel::has_reached(start, uses); }
  /// True if no kernel of it waits, moves or has yet to leave.
  bool have_kernels_left() const;
  /// Its present use has no kernels. For an acquired state.
  void mark_kernels_left();
  /// True if the program's stream waits for its counters no more, as far as it tells.
  bool is_gate_passed() const { return Channel::has_reached(passed, gated); }
  /// True if its relays' channels have passed it.
  bool have_channels_landed() const;
  bool is_free() const {
    return !is_acquired && !retired && has_begun() && have_kernels_left() &&
           have_channels_landed() && is_gate_passed();
  }
  /// True if it waits for its turn, or moves.
  bool is_in_use() const { return is_acquired || (!retired && !is_free()); }

  void add(Channel& channel) { channels[channel_count++] = {&channel, channel.issued}; }
};

class TransferPool {
 public:
  /// `counters`: kBytes of the target's memory, and `words`: 2 * kBytes of host memory; all GPUs
  /// reach both, and both are zero. They must outlive the pool. Allocates.
  static constexpr size_t kStride = 256;  ///< apart, so that transfers share no cache line
  static constexpr size_t kBytes = kMostTransfers * kStride;
  TransferPool(CUdeviceptr counters, void* words);

  /// Acquires a free state for a transfer of `user`; null if all are in use, or `user` has too
  /// many. If the kernels' counts of its last use are still unread, it gets a new generation.
  TransferState* acquire(const StreamKey& user);

  std::vector<TransferState>& transfers() { return transfers_; }
  /// States that are in use, or were at the last `acquire`.
  const std::vector<TransferState*>& in_use() const { return in_use_; }
  bool all_free() const;

 private:
  std::vector<TransferState> transfers_;
  std::vector<TransferState*> free_;    // no vector grows after opening
  std::vector<TransferState*> in_use_;  // or were, when last looked at
};

}  // namespace braid::multipath
