// Memory for slice lists: a ring of host memory that every GPU can read, given out in the order of
// the transfers and taken back when their states are free. Made once; nothing allocates later.
//
// The lists of a retired state are never given out again, since a kernel may still read them; the
// ring continues after them.
//
// Not thread-safe: the owning Target's lock guards it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "cuda/kernels/pull.h"
#include "cuda/registered_memory.h"
#include "multipath/transfer_state.h"

namespace braid::multipath {

class ListRing {
 public:
  /// 8 MiB: 2 GiB in slices of 64 KiB, and 320,000 small segments, in flight to one GPU. Larger
  /// batches take larger slices, or are native.
  static constexpr uint64_t kSizeBytes = 8 << 20;
  /// The most lists that one batch can have.
  static constexpr size_t kLists = kSizeBytes / sizeof(cuda::SliceList);

  /// In memory of kSizeBytes.
  explicit ListRing(std::unique_ptr<cuda::RegisteredMemory> memory) : memory_(std::move(memory)) {}
  /// Call it when nothing reads the memory any more. The ring may not be used afterwards.
  std::unique_ptr<cuda::RegisteredMemory> take_memory() { return std::move(memory_); }

  /// Room for `count` lists, valid until the next call. Empty if earlier transfers still hold too
  /// much.
  std::span<cuda::SliceList> reserve(size_t count);

  /// The first `count` lists of the last reservation belong to `state`'s present use.
  void commit(size_t count, const TransferState& state);

  /// The context is gone: a kernel may still read, so the pages stay.
  void abandon() { memory_->abandon(); }

 private:
  struct Range {
    size_t begin = 0;
    size_t end = 0;  ///< one past its last list
  };
  struct Reservation {
    Range lists;
    const TransferState* state = nullptr;
    uint32_t generation = 0;
    /// The transfer's state has another use now, or its kernels have left, or were never launched.
    bool is_over() const { return state->generation != generation || state->have_kernels_left(); }
    bool is_lost() const { return !is_over() && !state->is_acquired && state->retired; }
  };
  static constexpr size_t kMostLost = 16;  // with more, batches are native

  void reclaim();
  std::optional<size_t> fit(Range room, size_t count) const;
  cuda::SliceList* lists() const { return static_cast<cuda::SliceList*>(memory_->data()); }

  std::unique_ptr<cuda::RegisteredMemory> memory_;
  std::array<Reservation, kMostTransfers>
      reservations_;  // a ring as well; each transfer has one use at most
  size_t first_reservation_ = 0;
  size_t reservation_count_ = 0;
  size_t begin_ = 0;  // of the oldest list in use; lists from begin_ to end_ (around) are taken
  size_t end_ = 0;
  size_t reserved_at_ = 0;
  std::array<Range, kMostLost> lost_;
  size_t lost_count_ = 0;
};

}  // namespace braid::multipath
