// The pull kernel's contract, shared by the device code (pull.cu), its host twin (pull_twin.cpp)
// and the code that launches it (multipath/kernel_mover).
//
// One launch serves one path of one transfer: a few thread blocks on the path's GPU take slice
// numbers from a counter that all paths of the transfer share, and copy each slice from `source` to
// `destination`. H2D loads host memory over this GPU's PCIe link and stores into the target GPU
// over NVLink (or locally on the direct path); D2H is the mirror image. MMA sections 3.4.2
// (pull-based path selection, direct path first, yielding) and 3.4.3, with the relay buffers and
// the CPU's scheduler threads designed away.
#pragma once

#include <cstdint>

namespace braid::cuda {

inline constexpr const char* kPullKernelName = "braid_pull";

/// The most paths that one transfer can take, and so the most GPUs of one server.
inline constexpr uint32_t kMaxPaths = 16;

/// Shared by all kernels of one transfer; lies in the target GPU's memory, and every path's GPU
/// reaches it with system-scope atomics. All zero before its first use. Reused by later transfers,
/// but only after every kernel of the last one has left.
struct TicketCounters {
  uint32_t next;  ///< next slice number to take; reset by the last block to leave
  uint32_t left;  ///< blocks that have left; reset by the last block to leave
  uint32_t done;  ///< slices landed, over all uses of this ticket: never reset, wraps
  uint32_t unused;
  uint32_t slices[kMaxPaths];  ///< slices landed by path; reset by the last block to leave
};

/// What the last block to leave tells the host. Lies in host memory that the target GPU can write.
/// `generation` is written last, system scope: once the host reads the generation that it launched,
/// the ticket is free and `slices` is final.
struct TicketReport {
  uint32_t generation;
  uint32_t unused[3];
  uint32_t slices[kMaxPaths];
};

struct PullArgs {
  uint64_t source;       ///< address of the first byte to read, valid on this path's GPU
  uint64_t destination;  ///< address of the first byte to write, valid on this path's GPU
  uint64_t size_bytes;   ///< of the whole transfer
  uint64_t counters;     ///< TicketCounters*, in the target GPU's memory
  uint64_t report;       ///< TicketReport*, in host memory
  uint64_t busy;         ///< uint32_t* in this GPU's memory: direct-path blocks now at work on this
                         ///< GPU in this direction. Direct blocks count themselves in and out;
                         ///< relay blocks wait while it is not zero (the yield word)
  uint32_t slice_bytes;  ///< of every slice but the last, which holds the rest
  uint32_t slice_count;
  uint32_t path;          ///< index into `slices`; 0 is the direct path
  uint32_t total_blocks;  ///< over all launches of this transfer
  uint32_t generation;    ///< written to the report when all have left
  uint32_t yields;        ///< 1: a relay that waits while its own GPU has direct work
};

}  // namespace braid::cuda
