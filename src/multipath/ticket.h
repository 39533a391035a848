// Tickets: the few words of memory that the kernels of one transfer share, taken from a pool that
// is allocated once. A ticket is free again when every kernel launched with it has left, which the
// last one writes into host memory: finding a free ticket costs a plain load, no driver call.
//
// Not thread-safe: the owning Target's lock guards it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "cuda/driver.h"
#include "cuda/kernels/pull.h"
#include "cuda/registered_memory.h"
#include "multipath/transfer.h"

namespace braid::multipath {

/// Programs enqueue copies far ahead of the GPU; 256 of them, each over the threshold, are beyond
/// what a stream holds in practice. When all are in use the next copy is native.
inline constexpr size_t kTickets = 256;

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

struct Ticket {
  CUdeviceptr counters = 0;              ///< TicketCounters, in the target's memory
  cuda::TicketReport* report = nullptr;  ///< written by the last block to leave
  uint32_t generation = 0;               ///< of its last use; free when the report says the same
  uint32_t done = 0;         ///< what counters.done will read when its last use has landed
  bool retired = false;      ///< a block of it never comes or leaves: never used again
  bool has_landed = false;   ///< of a retired one: nobody reads its lists any more
  bool is_orphan = false;    ///< a relay of its last use is gone, perhaps with slices: rescue.h
  uint64_t launched_ns = 0;  ///< its last use was, by the system's clock
  // Of its last use, for the statistics; `unread` until they have been added up.
  bool unread = false;
  Direction direction = Direction::kHostToDevice;
  SlicedBytes bytes;
  int path_count = 0;
  std::array<int, cuda::kMaxPaths> lane_paths{};  ///< by path: its index in lane order

  /// It has been launched; over the direct path alone, until the paths say otherwise.
  void begin_use(Direction which, const SlicedBytes& what, uint64_t now_ns);

  bool is_free() const;
  /// Kernels of its last use wait, move or have yet to leave.
  bool is_in_use() const { return !retired && !is_free(); }
};

class TicketPool {
 public:
  /// In the current context. Allocates.
  static Result<std::unique_ptr<TicketPool>> open(const cuda::Driver& driver);
  ~TicketPool();
  TicketPool(const TicketPool&) = delete;
  TicketPool& operator=(const TicketPool&) = delete;

  /// A free ticket with a fresh generation, or null. Its last use's counts may still be unread.
  Ticket* find_free();
  /// One that `find_free` never gives away: for a rescue (rescue.h), when all others are in use.
  Ticket& spare() { return tickets_.back(); }

  std::vector<Ticket>& tickets() { return tickets_; }  ///< the spare one as well
  bool all_free() const;

  /// In the stream's order: copies the counters of all tickets to where `seen` finds them.
  CUresult read_counters(CUstream stream) const;
  const cuda::TicketCounters& seen(const Ticket& ticket) const;

  /// The context is gone: free nothing there.
  void abandon();

 private:
  explicit TicketPool(const cuda::Driver& driver) : driver_(driver) {}
  Status allocate();

  const cuda::Driver& driver_;
  bool abandoned_ = false;
  CUdeviceptr counters_ = 0;
  std::unique_ptr<cuda::RegisteredMemory> reports_;  // and behind them, the counters as last read
  std::vector<Ticket> tickets_;
  size_t next_ = 0;
};

}  // namespace braid::multipath
