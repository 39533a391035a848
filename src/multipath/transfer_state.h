// Transfer states: what one transfer has for itself while it is under way, taken from a pool that
// is allocated once: a word that says that the program's stream has come so far (start), the
// counters that its kernels share, their report, and the channels that it uses on relays. A
// transfer is free again when all of these are, which the GPUs write into host memory: finding a
// free transfer costs plain loads, no driver call.
//
// Threads: `acquire` and what reads all states want the owning Target's lock; a state that has
// been acquired is that thread's alone until it is released.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "cuda/kernels/pull.h"
#include "multipath/channel.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// Programs enqueue copies far ahead of the GPU; 256 of them, each over the threshold, are beyond
/// what a stream holds in practice. When all are in use the next copy is native.
inline constexpr size_t kMostTransfers = 256;

/// Transfers of one of the program's streams, and of all, that may be under way: each puts up to
/// four operations into the stream, and of about a thousand that have not begun the driver blocks
/// the caller.
inline constexpr int kMostOfOneStream = 64;
inline constexpr size_t kMostOfAll = 160;

inline constexpr size_t kMostChannelUses = kChannelsOfRelay * cuda::kMaxPaths;

/// A transfer as its kernels see it: one contiguous range, or lists of pieces (pull.h).
struct SlicedBytes {
  uint64_t source = 0;  ///< of a contiguous range
  uint64_t destination = 0;
  uint64_t size_bytes = 0;
  uint64_t lists = 0;  ///< of a batch; else 0
  uint32_t slice_bytes = 0;
  uint32_t slice_count = 0;
  bool aligned_alike = true;  ///< modulo 16: the bulk kernel will do
};

/// A channel, and what its word reads when this transfer has landed there.
struct ChannelUse {
  Channel* channel = nullptr;
  uint32_t landed = 0;
};

struct TransferState {
  CUdeviceptr counters = 0;                ///< TransferCounters, in the target's memory
  cuda::TransferReport* report = nullptr;  ///< written by the last block to leave
  uint32_t* start = nullptr;               ///< the program's stream writes `uses` here
  uint32_t uses = 0;
  uint32_t generation = 0;  ///< of its last use; its kernels have left when the report says so
  uint32_t done = 0;        ///< what counters.done will read when those have landed
  bool is_acquired = false;
  bool retired = false;  ///< a block of it never comes or leaves: never used again

  // Of its last use.
  Mover mover = Mover::kKernel;
  StreamKey user;
  uint64_t size_bytes = 0;
  uint64_t taken_ns = 0;
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
  /// No kernel of it waits, moves or has yet to leave.
  bool have_kernels_left() const;
  /// Its present use has no kernels. Of a state that has been acquired.
  void mark_kernels_left();
  /// Its relays' channels have gone past it.
  bool have_channels_landed() const;
  bool is_free() const {
    return !is_acquired && !retired && has_begun() && have_kernels_left() && have_channels_landed();
  }
  /// It waits for its turn, or moves.
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

  /// A free state, acquired for a transfer of `user`'s; null when all are in use, or too many are
  /// the user's. The counts of its last use by kernels may still be unread; then it gets a new
  /// generation.
  TransferState* acquire(const StreamKey& user);

  std::vector<TransferState>& transfers() { return transfers_; }
  /// Those that are in use, or were when `take` last looked.
  const std::vector<TransferState*>& in_use() const { return in_use_; }
  bool all_free() const;

 private:
  std::vector<TransferState> transfers_;
  std::vector<TransferState*> free_;    // no vector grows after opening
  std::vector<TransferState*> in_use_;  // or were, when last looked at
};

}  // namespace braid::multipath
