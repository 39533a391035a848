// Start here: which block of the KV cache is where, what is under way with it, and who uses it.
//
//   dirty ──seal──> sealed ──begin_sync──> syncing ──end_sync──> synced ──evict──> host only
//     ^                ^                      │ failed              ^                  │
//     │                └──────────────────────┘                     │              begin_load
//     └────────────────────────── reopen ─────────────────────── end_load <── loading <┘
//   lost: no good copy is left, its requests must compute it again.       failed: host only
//
// - dirty: steps may write it. sealed: written for the last time in step `sealed_in` (its epoch).
// - synced: both sides are equal. A synced block leaves the GPU without a copy (SuperInfer section
//   4.3.2: eager block rotation).
// - Every block has references, of the requests that need it, and users, those of them that run: a
//   shared prefix leaves the GPU only with its last user, and ends with its last reference.
// - A slot that a block leaves is fenced by the marks of all that may still touch it (slot_pool.h).
//
// The table decides nothing and moves nothing. Whoever copies asks `begin_...`, which gives the two
// slots and `after`, the marks that the copy must be put behind; and says `end_...` once the copy
// has ended, well or not. The rotation engine does so with streams and events, a simulator in
// virtual time. With tensor parallelism one table serves the whole group: its slots are those of
// every rank.
//
// Pure: no clock, no driver. One thread at a time. An operation that is refused changes nothing.
// Cost: each is O(1), and allocates only as the number of blocks grows.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "kv/marks.h"
#include "kv/slot_pool.h"

namespace braid::kv {

/// Who sees that a block has landed on the GPU.
enum class Landing : uint8_t {
  kOrdered,  ///< the steps that begin from now on: their stream waits for the copy
  kPolled    ///< nobody, before `end_load` is said
};

enum class BlockState : uint8_t {
  kDirty,
  kSealed,
  kSyncing,
  kSynced,
  kHostOnly,
  kLoading,
  kLost,
};
inline constexpr size_t kBlockStates = 7;
const char* state_name(BlockState state);

/// Never used twice: the number of a block that has ended is that of none.
enum class BlockId : uint64_t {};

/// Why an operation was refused.
enum class Refusal : uint8_t {
  kNone,
  kUnknownBlock,  ///< it has ended, or never was
  kWrongState,    ///< the operation is not one of its state
  kInUse,         ///< requests that run use it
  kShared,        ///< other requests need what it holds
  kCopying,       ///< a copy to or from it is under way
  kNoGpuSlot,
  kNoHostSlot,
  kStepNotEnded,  ///< the step that writes it is not enqueued yet
};
/// "a copy to or from the block is under way".
const char* refusal_words(Refusal refusal);

struct Block {
  static constexpr Slot kNoSlot = ~Slot{0};

  BlockState state = BlockState::kDirty;
  bool is_leaving = false;             ///< syncing: it leaves the GPU when the copy has landed
  Landing landing = Landing::kPolled;  ///< loading
  BlockState lands_as = BlockState::kSynced;  ///< loading: or dirty, or sealed by then
  bool is_enqueued = false;  ///< the table's own: it stands in the queue of `next_to_sync`
  Slot gpu_slot = kNoSlot;
  Slot host_slot = kNoSlot;
  uint32_t references = 1;
  uint32_t users = 1;  ///< at most `references`
  Mark sealed_in = 0;  ///< the step that wrote it last
  Marks last{};        ///< the latest step that may have used it, the latest copies of it

  bool is_on_gpu() const { return gpu_slot != kNoSlot && state != BlockState::kLoading; }
  bool is_on_host() const { return host_slot != kNoSlot && state != BlockState::kSyncing; }
};

class BlockTable {
 public:
  struct Slots {
    uint32_t gpu = 0;
    uint32_t host = 0;
  };
  struct Created {
    Refusal refusal = Refusal::kNone;
    BlockId id{};
    Marks after{};  ///< the step that writes it first must come after these
  };
  struct Copy {
    Refusal refusal = Refusal::kNone;
    Slot gpu_slot = Block::kNoSlot;
    Slot host_slot = Block::kNoSlot;
    Marks after{};  ///< the copy must come after these
  };

  explicit BlockTable(Slots slots) : gpu_(slots.gpu), host_(slots.host) {}

  /// The next step begins, and what is used from now on may be used by it. Returns its number.
  Mark begin_step() { return ++step_; }
  Mark step() const { return step_; }
  /// What has happened: fenced slots whose marks have passed are free.
  void pass(const Marks& passed);

  // A block's life. It is born with one reference and one user. Where a slot is taken, it is a free
  // one, or a fenced one whose marks `behind` covers: what the caller can order its stream behind.

  Created create(const Marks& behind = {});
  /// Another request needs it. Dirty blocks are not shared.
  Refusal add_reference(BlockId id);
  /// One request needs it no more; the last reference ends the block, in whatever state. A copy
  /// that is under way goes on, and holds its slots until its mark has passed.
  Refusal release(BlockId id);
  /// One of its requests runs: the block must be on the GPU, or loading and `kOrdered`. It no
  /// longer leaves.
  Refusal begin_use(BlockId id);
  /// That request has had its last step: the current one (`step`) may still use the block. So say
  /// it before `begin_step`.
  Refusal end_use(BlockId id);

  // Writing. The writer is the only request that has a reference.

  /// The current step is the last that writes it. One that is loading and was reopened is sealed
  /// when it has landed.
  Refusal seal(BlockId id);
  /// It will be written again (the last, partial block of a request that goes on). What the host
  /// has of it is given up. A block that is loading and `kOrdered` may be written by the next step,
  /// and becomes dirty when it has landed.
  Refusal reopen(BlockId id);

  // Copies. `mark` is the number of the batch that the copy belongs to.

  /// GPU to host: sealed becomes syncing.
  Copy begin_sync(BlockId id, Mark mark, const Marks& behind = {});
  /// Syncing becomes synced, or host only if it is leaving. Not `ok`: sealed, and not leaving.
  Refusal end_sync(BlockId id, bool ok);
  /// Host to GPU: host only becomes loading.
  Copy begin_load(BlockId id, Mark mark, Landing landing, const Marks& behind = {});
  /// Loading becomes synced, or dirty. Not `ok`: host only; who uses it has to load it again.
  Refusal end_load(BlockId id, bool ok);
  /// The block that was sealed first, of those no later than in step `sealed_by`, if no copy of it
  /// is under way: what eager write-through copies next.
  std::optional<BlockId> next_to_sync(Mark sealed_by);

  // Leaving.

  /// Leaves the GPU. Synced: at once. Syncing: when the copy has landed. Without users only, and
  /// not before `end_load`.
  Refusal evict(BlockId id);
  /// Gives up the host's copy of a synced block, which is sealed again, to make room there. Eager
  /// write-through copies it again in its turn.
  Refusal drop_host(BlockId id);
  /// No good copy is left, or the caller gives it up: lost. Both slots are given back. Not while a
  /// copy is under way, nor while it has users.
  Refusal lose(BlockId id);
  /// The GPU has failed, and nothing runs there any more: what the host has is host only, all else
  /// is lost. Slots come back at once. References and users stay until they are taken back.
  void lose_gpu();

  /// Null: there is no such block. Until the next operation.
  const Block* find(BlockId id) const {
    const auto index = static_cast<uint32_t>(id);
    if (index >= entries_.size()) return nullptr;
    const Entry& entry = entries_[index];
    const bool is_it = entry.is_alive && entry.generation == static_cast<uint64_t>(id) >> 32;
    return is_it ? &entry.block : nullptr;
  }
  /// It is asked for soon: a plan's blocks lie anywhere, and mostly in no cache of the CPU.
  void prefetch(BlockId id) const {
    const auto index = static_cast<uint32_t>(id);
    if (index < entries_.size()) __builtin_prefetch(&entries_[index]);
  }
  const SlotPool& gpu() const { return gpu_; }
  const SlotPool& host() const { return host_; }
  size_t count(BlockState state) const { return counts_[static_cast<size_t>(state)]; }
  size_t size() const { return size_; }
  /// `visit(id, block)` for each.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (uint32_t index = 0; index < entries_.size(); ++index)
      if (entries_[index].is_alive) visit(id_of(index), entries_[index].block);
  }

 private:
  struct alignas(64) Entry {
    Block block;
    uint32_t generation = 0;
    bool is_alive = false;
  };

  BlockId id_of(uint32_t index) const {
    return BlockId{uint64_t{entries_[index].generation} << 32 | index};
  }
  Block* find_mutable(BlockId id) { return const_cast<Block*>(find(id)); }
  void set_state(Block& block, BlockState state);
  void free_gpu_slot(Block& block);
  void lose_gpu_copy(Block& block, bool is_on_host);
  void free_host_slot(Block& block);
  void enqueue_unsynced(BlockId id, Block& block);

  SlotPool gpu_;
  SlotPool host_;
  Mark step_ = 0;
  std::vector<Entry> entries_;
  std::vector<uint32_t> unused_;  // indices of entries_
  std::deque<BlockId> unsynced_;  // sealed ones, and stale ones, in the order of sealing
  std::array<size_t, kBlockStates> counts_{};
  size_t size_ = 0;
};

}  // namespace braid::kv
