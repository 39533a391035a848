// Start here: the place of each block of the KV cache, its copies under way, and its users.
//
//   dirty ──seal──> sealed ──begin_sync──> syncing ──end_sync──> synced ──evict──> host only
//     ^                ^                      │ failed              ^                  │
//     │                └──────────────────────┘                     │              begin_load
//     └────────────────────────── reopen ─────────────────────── end_load <── loading <┘
//   lost: no good copy is left, its requests must compute it again.       failed: host only
//
// - dirty: steps may write it. sealed: last written in step `sealed_in` (its epoch).
// - synced: both sides are equal. A synced block leaves the GPU without a copy (SuperInfer section
//   4.3.2: eager block rotation).
// - Every block has references, one for each request that needs it, and users, one for each of
// these
//   requests that runs. A shared prefix leaves the GPU after its last user, and ends with its last
//   reference.
// - When a block leaves a slot, the marks of all work that may still touch the slot fence it
//   (slot_pool.h).
//
// The table decides nothing and moves nothing. To copy a block, a caller asks `begin_...`, which
// returns the two slots and `after`, the marks that the copy must be ordered behind. It calls
// `end_...` once the copy has ended or failed. The rotation engine does so with streams and events,
// a simulator in virtual time. With tensor parallelism one table serves the whole group: its slots
// are those of every rank.
//
// Pure: no clock, no driver. One thread at a time. A refused operation changes nothing. Cost: most
// operations are O(1), `seal` and `next_to_sync` on average over calls. Taking a slot looks for the
// lowest free one, 64 at a time, and through the fenced ones if none is free. `pass` goes through
// the fenced slots, `lose_gpu` and `lose_all` through everything. Memory is allocated only as the
// numbers of blocks and of fenced slots grow.
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

/// When steps may use a block that is loading.
enum class Landing : uint8_t {
  kOrdered,  ///< the steps that begin from now on: their stream waits for the copy
  kPolled    ///< only after `end_load`
};

/// What becomes of a block on the GPU when its copy to the host has landed.
enum class Then : uint8_t {
  kStays,
  kLeaves  ///< as `evict` would have it
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

/// Never used twice: the id of a block that has ended names no block.
enum class BlockId : uint64_t {};

/// Why an operation was refused.
enum class Refusal : uint8_t {
  kNone,
  kUnknownBlock,  ///< the block has ended, or never existed
  kWrongState,    ///< the block's state does not allow the operation
  kInUse,         ///< running requests use it
  kShared,        ///< other requests need its content
  kCopying,       ///< a copy to or from it is under way
  kNoGpuSlot,
  kNoHostSlot,
  kStepNotEnded,  ///< the step that writes it is not fully enqueued yet
};
/// "a copy to or from the block is under way".
const char* refusal_words(Refusal refusal);

struct Block {
  static constexpr Slot kNoSlot = ~Slot{0};

  BlockState state = BlockState::kDirty;
  bool is_leaving = false;             ///< syncing: it leaves the GPU when the copy has landed
  Landing landing = Landing::kPolled;  ///< loading
  BlockState lands_as = BlockState::kSynced;  ///< loading: its state once loaded: synced, dirty or
                                              ///< sealed
  bool is_enqueued = false;                   ///< internal: it is in the queue of `next_to_sync`
  Slot gpu_slot = kNoSlot;
  Slot host_slot = kNoSlot;
  uint32_t references = 1;
  uint32_t users = 1;  ///< at most `references`
  Mark sealed_in = 0;  ///< the step that wrote it last
  Marks last{};        ///< the latest step that may have used it, and its latest copies

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
    Marks after{};  ///< the first step that writes it must come after these
  };
  struct Copy {
    Refusal refusal = Refusal::kNone;
    Slot gpu_slot = Block::kNoSlot;
    Slot host_slot = Block::kNoSlot;
    Marks after{};  ///< the copy must come after these
  };

  explicit BlockTable(Slots slots) : gpu_(slots.gpu), host_(slots.host) {}

  /// The next step begins: it may use every block that is used from now on. Returns its number.
  Mark begin_step() { return ++step_; }
  Mark step() const { return step_; }
  /// `passed` has happened: fenced slots whose marks have passed become free.
  void pass(const Marks& passed);

  // A block's life. It begins with one reference and one user. An operation that needs a slot takes
  // a free one, or a fenced one whose marks `behind` covers: the caller can order its stream behind
  // these.

  Created create(const Marks& behind = {});
  /// Another request needs it. Dirty blocks are not shared.
  Refusal add_reference(BlockId id);
  /// One request no longer needs it. The last reference ends the block, in any state. A copy that
  /// is under way goes on, and holds its slots until its mark has passed.
  Refusal release(BlockId id);
  /// One of its requests runs. The block must be on the GPU, or loading and `kOrdered`. It no
  /// longer leaves the GPU.
  Refusal begin_use(BlockId id);
  /// That request has enqueued its last step. The current step (`step`) may still use the block, so
  /// call it before `begin_step`.
  Refusal end_use(BlockId id);

  // Writing. Only a request that has the only reference may write.

  /// The current step is the last one to write it. A reopened block that is still loading is sealed
  /// when it has landed.
  Refusal seal(BlockId id);
  /// It will be written again (the last, partial block of a request that goes on). The host's copy
  /// is discarded. The next step may write a block that is loading and `kOrdered`; it becomes dirty
  /// when it has landed.
  Refusal reopen(BlockId id);
  /// Whether `reopen` would be refused now.
  Refusal check_reopen(BlockId id) const;

  // Copies. `mark` is the number of the batch that the copy belongs to.

  /// GPU to host: sealed becomes syncing. A block that has users does not leave.
  Copy begin_sync(BlockId id, Mark mark, const Marks& behind = {}, Then then = Then::kStays);
  /// Syncing becomes synced, or host only if it is leaving. If not `ok`: sealed, and not leaving.
  Refusal end_sync(BlockId id, bool ok);
  /// Host to GPU: host only becomes loading.
  Copy begin_load(BlockId id, Mark mark, Landing landing, const Marks& behind = {});
  /// Loading becomes synced, or dirty. If not `ok`: host only; its users have to load it again.
  Refusal end_load(BlockId id, bool ok);
  /// The next block for eager write-through: the first sealed one, in step `sealed_by` or earlier,
  /// that has no copy under way.
  std::optional<BlockId> next_to_sync(Mark sealed_by);

  // Leaving.

  /// The block leaves the GPU: at once if synced, after its copy if syncing. Refused while it has
  /// users, and before `end_load`.
  Refusal evict(BlockId id);
  /// The block stays on the GPU, also if it was to leave after its copy. Refused where it is not,
  /// and before `end_load`.
  Refusal keep(BlockId id);
  /// Discards the host copy of a synced block, to make room on the host. The block is sealed again,
  /// and eager write-through copies it again in its turn.
  Refusal drop_host(BlockId id);
  /// The block has no good copy left, or the caller discards it: lost. Both slots are given back.
  /// Refused while a copy is under way or the block has users.
  Refusal lose(BlockId id);
  /// The GPU has failed, and nothing runs there any more. Blocks with a host copy become host only,
  /// all others lost. Slots are free at once. References and users stay until their holders release
  /// them.
  void lose_gpu();
  /// After `lose_gpu`: the host's copies are gone, too. Every block is lost.
  void lose_all();

  /// Null if there is no such block. Valid until the next operation.
  const Block* find(BlockId id) const {
    const auto index = static_cast<uint32_t>(id);
    if (index >= entries_.size()) return nullptr;
    const Entry& entry = entries_[index];
    const bool is_it = entry.is_alive && entry.generation == static_cast<uint64_t>(id) >> 32;
    return is_it ? &entry.block : nullptr;
  }
  /// Prefetches a block that is needed soon: the blocks of a plan are scattered, and mostly not
  /// cached.
  [[gnu::always_inline]] void prefetch(BlockId id) const {
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
  std::deque<BlockId> unsynced_;  // sealed blocks, and stale entries, in the order of sealing
  std::array<size_t, kBlockStates> counts_{};
  size_t size_ = 0;
};

// A plan begins thousands of copies. Inline, so that the answers stay in registers: a list that
// reads the two slots of an answer from memory as one word waits until both have been stored.

inline void BlockTable::set_state(Block& block, BlockState state) {
  --counts_[static_cast<size_t>(block.state)];
  ++counts_[static_cast<size_t>(state)];
  block.state = state;
}

inline BlockTable::Copy BlockTable::begin_sync(BlockId id, Mark mark, const Marks& behind,
                                               Then then) {
  Block* block = find_mutable(id);
  if (block == nullptr) return {.refusal = Refusal::kUnknownBlock};
  if (block->state == BlockState::kSyncing) return {.refusal = Refusal::kCopying};
  if (block->state != BlockState::kSealed) return {.refusal = Refusal::kWrongState};
  if (then == Then::kLeaves && block->users > 0) return {.refusal = Refusal::kInUse};
  const auto taken = host_.take(behind);
  if (!taken) return {.refusal = Refusal::kNoHostSlot};
  block->host_slot = taken->slot;
  block->last.join(taken->after);
  block->last.down = mark;
  set_state(*block, BlockState::kSyncing);
  block->is_leaving = then == Then::kLeaves;
  Marks after = taken->after;
  after.join({.step = block->sealed_in});
  return {Refusal::kNone, block->gpu_slot, block->host_slot, after};
}

inline BlockTable::Copy BlockTable::begin_load(BlockId id, Mark mark, Landing landing,
                                               const Marks& behind) {
  Block* block = find_mutable(id);
  if (block == nullptr) return {.refusal = Refusal::kUnknownBlock};
  if (block->state == BlockState::kLoading) return {.refusal = Refusal::kCopying};
  if (block->state != BlockState::kHostOnly) return {.refusal = Refusal::kWrongState};
  const auto taken = gpu_.take(behind);
  if (!taken) return {.refusal = Refusal::kNoGpuSlot};
  block->gpu_slot = taken->slot;
  block->last.join(taken->after);
  block->last.up = mark;
  block->landing = landing;
  set_state(*block, BlockState::kLoading);
  return {Refusal::kNone, block->gpu_slot, block->host_slot, taken->after};
}

inline Refusal BlockTable::keep(BlockId id) {
  Block* block = find_mutable(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (block->state == BlockState::kLoading) return Refusal::kCopying;
  if (!block->is_on_gpu()) return Refusal::kWrongState;
  block->is_leaving = false;
  return Refusal::kNone;
}

}  // namespace braid::kv
