// The pull kernel's contract, shared by the device code (pull_kernels.cu), its host twin
// (pull_twin.cpp) and the code that launches it (multipath/kernel_mover).
//
// One launch serves one path of one transfer: a few thread blocks on the path's GPU take slice
// numbers from a counter that all paths of the transfer share, and copy each slice from its source
// to its destination. H2D loads host memory over this GPU's PCIe link and stores into the target
// GPU over NVLink (or locally on the direct path); D2H is the mirror image. A slice is a range of
// one contiguous copy, or a few pieces of a batch. MMA sections 3.4.1 (priorities), 3.4.2
// (pull-based path selection, relay scheduling, yielding) and 3.4.3, but without relay buffers and
// without scheduler threads on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/kernels/congestion.h"
#include "cuda/kernels/host_device.h"

namespace braid::cuda {

/// Ordinary loads and stores: any architecture, any alignment.
inline constexpr const char* kVectorKernelName = "braid_pull";
inline constexpr uint32_t kVectorThreads = 512;

/// A ring of stages in dynamic shared memory, through which one thread moves bytes by bulk copies.
struct BulkRing {
  uint32_t stage_bytes;
  uint32_t stages;

  constexpr uint32_t size_bytes() const { return stage_bytes * stages; }
};

/// Bulk asynchronous copies: sm_90 and newer, both ends aligned alike modulo 16. One thread works.
inline constexpr const char* kBulkKernelName = "braid_pull_bulk";
inline constexpr uint32_t kBulkThreads = 32;
inline constexpr uint32_t kBulkStoresInFlight = 4;
inline constexpr BulkRing kBulkRing{16 << 10, 12};

/// The same for what a GPU writes to the host from its own memory. Its loads are answered at once,
/// so a large ring would always have more to write than the link takes, and writes that wait hold
/// up whatever else the GPU reads and writes: kernels of the program, and the reads from the host
/// that the other direction needs (docs/measurements, 2026-11-28-H200-both-ways).
inline constexpr const char* kToHostKernelName = "braid_pull_to_host";
inline constexpr BulkRing kToHostRing{8 << 10, 8};

/// The most paths that one transfer can take, and so the most GPUs of one server.
inline constexpr uint32_t kMaxPaths = 16;

/// Shared by all kernels of one transfer; lies in the target GPU's memory, and every path's GPU
/// reaches it with system-scope atomics. All zero before its first use. Reused by later transfers,
/// but only after every kernel of the last one has left.
struct TransferCounters {
  uint32_t next;  ///< next slice number to take; reset by the last block to leave
  uint32_t left;  ///< blocks that have left; reset by the last block to leave
  uint32_t done;  ///< slices landed, over all uses of this state: never reset, wraps
  uint32_t unused;
  uint32_t slices[kMaxPaths];  ///< slices landed by path; reset by the last block to leave
  /// Bytes that those fell short of slice_bytes each; likewise. More than 4 GiB where a batch has
  /// few bytes in slices of 1 MiB.
  uint64_t short_bytes[kMaxPaths];
};

/// The report of the last block to leave. Lies in host memory that every path's GPU can write.
/// `generation` is written last, system scope: once the host reads the generation that it launched,
/// the state is free and the counts are final.
struct TransferReport {
  uint32_t generation;
  uint32_t unused[3];
  uint32_t slices[kMaxPaths];
  uint64_t short_bytes[kMaxPaths];
};

/// Blocks on a link have ranks, and a block rests while a block of a lower rank works there. Relays
/// work in contexts of their own, with records of their own. So urgent blocks go first among
/// relays, and on the direct path; a relay and its own GPU's direct path do not meet.
inline constexpr uint32_t kUrgentDirectRank = 0;
inline constexpr uint32_t kUrgentRelayRank = 1;
inline constexpr uint32_t kBulkDirectRank = 2;
inline constexpr uint32_t kBulkRelayRank = 3;
inline constexpr uint32_t kRanks = 4;

/// The load of one context's kernels on their GPU's PCIe link in one direction, so that transfers
/// can make room for each other between two slices. Lies in that GPU's memory; only blocks of that
/// context touch it.
struct LinkOccupancy {
  uint32_t blocks[kRanks];         ///< at work, by rank; blocks count themselves in and out
  uint32_t relayed_kb[kMaxPaths];  ///< by relay slot: KB left of a transfer that is relayed here,
                                   ///< as one of its blocks last saw it; 0: none
  uint64_t rests_until_ns;         ///< no block relays here before this time: the link is congested
};

/// The data for detecting congestion on one GPU's link (congestion.h). Lies in that GPU's memory;
/// only its own blocks touch it, and a lost update does no harm.
struct LinkPace {
  uint32_t moved_kb[2];              ///< over the link, by direction; wraps
  UsualPace usual[2][kMaxPaths][2];  ///< by direction, the transfer's paths less one, both ways
};

inline constexpr uint32_t kNoRelaySlot = ~uint32_t{0};

/// A relay rests while another slot has more left than its own, by a quarter and this much: so
/// equal queues share the link instead of stopping each other in turn.
inline constexpr uint32_t kRelayMarginKb = 1024;

inline constexpr uint32_t kPiecesPerSlice = 10;

/// A part of one segment, contiguous at both ends.
struct SlicePiece {
  uint64_t source;
  uint64_t destination;
  uint32_t size_bytes;
  uint32_t unused;
};

/// One slice of a batch: pieces of its segments. The CPU writes thousands of them within a call, so
/// the first two pieces lie in the cache line of the counts: blocks of a KV cache need no more.
/// Read by bulk copies, which want 16 bytes of alignment.
struct alignas(64) SliceList {
  uint32_t piece_count;
  uint32_t size_bytes;  ///< of all pieces, at most PullArgs::slice_bytes
  uint32_t unused[2];
  SlicePiece pieces[kPiecesPerSlice];
};
static_assert(sizeof(SliceList) == 256);

struct PullArgs {
  uint64_t source;       ///< address of the first byte to read, valid on this path's GPU
  uint64_t destination;  ///< address of the first byte to write, valid on this path's GPU
  uint64_t size_bytes;   ///< of the whole transfer
  uint64_t lists;        ///< of a batch: SliceList[slice_count], in host memory, and the three
                         ///< fields above mean nothing; of a contiguous copy: 0
  uint64_t counters;     ///< TransferCounters*, in the target GPU's memory
  uint64_t report;       ///< TransferReport*, in host memory
  uint64_t occupancy;    ///< LinkOccupancy* of this context and direction, in this GPU's memory
  uint64_t pace;         ///< LinkPace* of this GPU; 0: no rest for congestion
  uint64_t shared;       ///< uint32_t* in host memory: set when the GPU turns out to be shared by
                         ///< time slices (is_preempted); 0 on the direct path, which does not check
  uint32_t slice_bytes;  ///< of every slice but the last, which holds the rest; of a batch: at most
  uint32_t slice_count;
  uint32_t path;          ///< index into `slices`; 0 is the direct path
  uint32_t path_count;    ///< of this transfer
  uint32_t total_blocks;  ///< over all launches of this transfer; 0: a launch that does nothing,
                          ///< and only has the driver make room for the kernel
  uint32_t generation;    ///< written to the report when all have left
  uint32_t rank;          ///< of this path's blocks on the link
  uint32_t relay_slot;    ///< index into relayed_kb; kNoRelaySlot: relays have no order
  uint32_t is_favoured;   ///< 1: this transfer's slot counts as the longest
  uint32_t direction;     ///< index into LinkPace
  uint32_t relays_stay;  ///< 1: no block is on the direct path, which could carry what relays leave
};

/// One slice as a range of the transfer's bytes.
struct Slice {
  uint64_t offset;
  uint64_t size_bytes;
};

/// Slices are cut at multiples of slice_bytes from the last 16-byte boundary at or before the
/// destination, so that only the ends of a transfer are unaligned. Returns the number of bytes
/// between that boundary and the destination.
BRAID_HOST_DEVICE inline uint64_t slice_lead(uint64_t destination) { return destination & 15; }

BRAID_HOST_DEVICE inline uint64_t slice_count_of(uint64_t destination, uint64_t size_bytes,
                                                 uint64_t slice_bytes) {
  return (size_bytes + slice_lead(destination) + slice_bytes - 1) / slice_bytes;
}

BRAID_HOST_DEVICE inline Slice slice_bounds(const PullArgs& args, uint32_t number) {
  const uint64_t lead = slice_lead(args.destination);
  const uint64_t begin = uint64_t{number} * args.slice_bytes;
  const uint64_t end = begin + args.slice_bytes;
  const uint64_t offset = begin < lead ? 0 : begin - lead;
  const uint64_t limit = end - lead < args.size_bytes ? end - lead : args.size_bytes;
  return {offset, limit - offset};
}

/// The value that a relay's block writes into its slot when `next` is the next slice to take.
BRAID_HOST_DEVICE inline uint32_t kb_left(const PullArgs& args, uint32_t next) {
  if (args.is_favoured != 0) return ~uint32_t{0};
  const uint32_t slices = next < args.slice_count ? args.slice_count - next : 0;
  return static_cast<uint32_t>((uint64_t{slices} * args.slice_bytes) >> 10);
}

/// Kernels of several contexts share a GPU by time slices of a millisecond and more, unless MPS
/// runs, and lose most of their speed. A relay's block detects this by the time between two checks,
/// and leaves the rest of the transfer to the direct path, if there is a block (relays_stay). A
/// slice takes 20 to 300 us.
inline constexpr uint64_t kPreemptedNs = 1'000'000;
BRAID_HOST_DEVICE inline bool is_preempted(const PullArgs& args, uint64_t last_ns,
                                           uint64_t now_ns) {
  return args.shared != 0 && last_ns != 0 && now_ns > last_ns + kPreemptedNs;
}

/// Direct blocks never rest for congestion. Nor do blocks of batches, whose pace depends on their
/// segments: 8 KiB segments take twice as long as a contiguous copy.
BRAID_HOST_DEVICE inline bool minds_congestion(const PullArgs& args) {
  return args.pace != 0 && args.path != 0 && args.lists == 0;
}

/// Offset in LinkPace of the usual pace for this sample.
BRAID_HOST_DEVICE inline uint64_t usual_offset(const PullArgs& args, const LinkSample& sample) {
  const uint64_t index =
      (uint64_t{args.direction} * kMaxPaths + args.path_count - 1) * 2 + sample.is_both_ways;
  return offsetof(LinkPace, usual) + index * sizeof(UsualPace);
}

/// Whether a block has to rest for braid's own work, given the occupancy that it last read and the
/// rest of its own transfer.
BRAID_HOST_DEVICE inline bool must_rest(const PullArgs& args, const LinkOccupancy& occupancy,
                                        uint32_t own_kb) {
  BRAID_UNROLL  // the occupancy stays in registers
      for (uint32_t rank = 0; rank < kRanks;
           ++rank) if (rank < args.rank && occupancy.blocks[rank] != 0) return true;
  if (args.relay_slot == kNoRelaySlot || args.is_favoured != 0) return false;
  BRAID_UNROLL
  for (uint32_t slot = 0; slot < kMaxPaths; ++slot)
    if (slot != args.relay_slot && occupancy.relayed_kb[slot] > own_kb &&
        occupancy.relayed_kb[slot] - own_kb > own_kb / 4 + kRelayMarginKb)
      return true;
  return false;
}

}  // namespace braid::cuda
