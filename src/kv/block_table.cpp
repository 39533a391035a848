#include "kv/block_table.h"

#include <utility>

namespace braid::kv {
namespace {

bool is_landing_unseen(const Block& block) {
  return block.state == BlockState::kLoading && block.landing == Landing::kPolled;
}

// Steps may write it, now or once it has landed.
bool is_dirty(const Block& block) {
  return block.state == BlockState::kDirty ||
         (block.state == BlockState::kLoading && block.lands_as == BlockState::kDirty);
}

}  // namespace

const char* state_name(BlockState state) {
  switch (state) {
    case BlockState::kDirty: return "dirty";
    case BlockState::kSealed: return "sealed";
    case BlockState::kSyncing: return "syncing";
    case BlockState::kSynced: return "synced";
    case BlockState::kHostOnly: return "host only";
    case BlockState::kLoading: return "loading";
    case BlockState::kLost: return "lost";
  }
  return "unknown";
}

const char* refusal_words(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone: return "nothing was refused";
    case Refusal::kUnknownBlock: return "there is no such block";
    case Refusal::kWrongState: return "the block's state does not allow it";
    case Refusal::kInUse: return "requests that run use the block";
    case Refusal::kShared: return "other requests need what the block holds";
    case Refusal::kCopying: return "a copy to or from the block is under way";
    case Refusal::kNoGpuSlot: return "no slot of the GPU is free";
    case Refusal::kNoHostSlot: return "no slot of the host is free";
    case Refusal::kStepNotEnded: return "the step that writes the block is not enqueued yet";
  }
  return "unknown";
}

void BlockTable::pass(const Marks& passed) {
  gpu_.pass(passed);
  host_.pass(passed);
}

void BlockTable::free_gpu_slot(Block& block) {
  if (block.gpu_slot != Block::kNoSlot) gpu_.give_back(block.gpu_slot, block.last);
  block.gpu_slot = Block::kNoSlot;
}

// Steps do not touch the host's slots.
void BlockTable::free_host_slot(Block& block) {
  if (block.host_slot != Block::kNoSlot)
    host_.give_back(block.host_slot, {.down = block.last.down, .up = block.last.up});
  block.host_slot = Block::kNoSlot;
}

// ---- A block's life ----

BlockTable::Created BlockTable::create(const Marks& behind) {
  const auto taken = gpu_.take(behind);
  if (!taken) return {.refusal = Refusal::kNoGpuSlot};
  if (unused_.empty()) {
    unused_.push_back(static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const uint32_t index = unused_.back();
  unused_.pop_back();
  Entry& entry = entries_[index];
  ++entry.generation;
  entry.is_alive = true;
  entry.block = {.gpu_slot = taken->slot};
  entry.block.last = taken->after;  // whoever has the slot next comes after these, too
  ++counts_[static_cast<size_t>(BlockState::kDirty)];
  ++size_;
  return {.id = id_of(index), .after = taken->after};
}

Refusal BlockTable::add_reference(BlockId id) {
  Block* block = find_mutable(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (is_dirty(*block) || block->state == BlockState::kLost) return Refusal::kWrongState;
  ++block->references;
  return Refusal::kNone;
}

Refusal BlockTable::release(BlockId id) {
  Block* block = find_mutable(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (block->users == block->references) return Refusal::kInUse;
  if (--block->references > 0) return Refusal::kNone;
  free_gpu_slot(*block);
  free_host_slot(*block);
  --counts_[static_cast<size_t>(block->state)];
  --size_;
  const auto index = static_cast<uint32_t>(id);
  entries_[index].is_alive = false;
  unused_.push_back(index);
  return Refusal::kNone;
}

Refusal BlockTable::begin_use(BlockId id) {
  Block* block = find_mutable(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (block->gpu_slot == Block::kNoSlot) return Refusal::kWrongState;
  if (is_landing_unseen(*block)) return Refusal::kCopying;
  if (block->users == block->references) return Refusal::kInUse;
  ++block->users;
  block->is_leaving = false;
  return Refusal::kNone;
}

Refusal BlockTable::end_use(BlockId id) {
  Block* block = find_mutable(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (block->users == 0) return Refusal::kWrongState;
  --block->users;
  block->last.step = step_;
  return Refusal::kNone;
}

// ---- Writing ----

Refusal BlockTable::seal(BlockId id) {
  Block* block = find_mutable(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (!is_dirty(*block)) return Refusal::kWrongState;
  block->sealed_in = step_;
  if (block->state == BlockState::kLoading)
    block->lands_as = BlockState::kSealed;
  else
    enqueue_unsynced(id, *block);
  return Refusal::kNone;
}

void BlockTable::enqueue_unsynced(BlockId id, Block& block) {
  set_state(block, BlockState::kSealed);
  if (block.is_enqueued) return;
  block.is_enqueued = true;
  unsynced_.push_back(id);
  // Blocks that have ended stay in the queue until they reach its front. Keep their number small.
  if (unsynced_.size() > 2 * size_ + 64)
    std::erase_if(unsynced_, [this](BlockId queued) { return find(queued) == nullptr; });
}

Refusal BlockTable::check_reopen(BlockId id) const {
  const Block* block = find(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (block->references > 1) return Refusal::kShared;
  if (is_landing_unseen(*block)) return Refusal::kCopying;
  switch (block->state) {
    case BlockState::kSealed:
    case BlockState::kSynced:
    case BlockState::kLoading: return Refusal::kNone;
    case BlockState::kSyncing: return Refusal::kCopying;
    default: return Refusal::kWrongState;
  }
}

Refusal BlockTable::reopen(BlockId id) {
  if (const Refusal refusal = check_reopen(id); refusal != Refusal::kNone) return refusal;
  Block& block = *find_mutable(id);
  if (block.state == BlockState::kLoading) {
    block.lands_as = BlockState::kDirty;
    return Refusal::kNone;
  }
  if (block.state == BlockState::kSynced) free_host_slot(block);
  set_state(block, BlockState::kDirty);
  return Refusal::kNone;
}

// ---- Copies ----

Refusal BlockTable::end_sync(BlockId id, bool ok) {
  Block* block = find_mutable(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (block->state != BlockState::kSyncing) return Refusal::kWrongState;
  const bool leaves = block->is_leaving;
  block->is_leaving = false;
  if (!ok) {
    free_host_slot(*block);
    enqueue_unsynced(id, *block);
  } else if (leaves) {
    free_gpu_slot(*block);
    set_state(*block, BlockState::kHostOnly);
  } else {
    set_state(*block, BlockState::kSynced);
  }
  return Refusal::kNone;
}

Refusal BlockTable::end_load(BlockId id, bool ok) {
  Block* block = find_mutable(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (block->state != BlockState::kLoading) return Refusal::kWrongState;
  const BlockState lands_as = block->lands_as;
  block->lands_as = BlockState::kSynced;
  if (!ok) {
    block->last.step = step_;  // a step that was ordered behind the load may be reading the slot
    lose_gpu_copy(*block, lands_as == BlockState::kSynced);
    return Refusal::kNone;
  }
  if (lands_as != BlockState::kSynced) free_host_slot(*block);
  if (lands_as == BlockState::kSealed)
    enqueue_unsynced(id, *block);
  else
    set_state(*block, lands_as);
  return Refusal::kNone;
}

std::optional<BlockId> BlockTable::next_to_sync(Mark sealed_by) {
  while (!unsynced_.empty()) {
    const BlockId id = unsynced_.front();
    Block* block = find_mutable(id);
    if (block != nullptr && block->state == BlockState::kSealed)
      return block->sealed_in <= sealed_by ? std::optional(id) : std::nullopt;
    if (block != nullptr) block->is_enqueued = false;
    unsynced_.pop_front();
  }
  return std::nullopt;
}

// ---- Leaving ----

Refusal BlockTable::evict(BlockId id) {
  Block* block = find_mutable(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (block->users > 0) return Refusal::kInUse;
  if (block->state == BlockState::kLoading) return Refusal::kCopying;
  if (block->state == BlockState::kSyncing) {
    block->is_leaving = true;
    return Refusal::kNone;
  }
  if (block->state != BlockState::kSynced) return Refusal::kWrongState;
  free_gpu_slot(*block);
  set_state(*block, BlockState::kHostOnly);
  return Refusal::kNone;
}

Refusal BlockTable::drop_host(BlockId id) {
  Block* block = find_mutable(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (block->state == BlockState::kSyncing) return Refusal::kCopying;
  if (block->state != BlockState::kSynced) return Refusal::kWrongState;
  free_host_slot(*block);
  enqueue_unsynced(id, *block);
  return Refusal::kNone;
}

Refusal BlockTable::lose(BlockId id) {
  Block* block = find_mutable(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (block->state == BlockState::kSyncing || block->state == BlockState::kLoading)
    return Refusal::kCopying;
  if (block->users > 0) return Refusal::kInUse;
  free_gpu_slot(*block);
  free_host_slot(*block);
  set_state(*block, BlockState::kLost);
  return Refusal::kNone;
}

void BlockTable::lose_gpu() {
  gpu_.free_fenced();
  host_.free_fenced();
  for (Entry& entry : entries_) {
    Block& block = entry.block;
    if (!entry.is_alive) continue;
    block.is_leaving = false;
    block.last = {};
    const BlockState lands_as = std::exchange(block.lands_as, BlockState::kSynced);
    lose_gpu_copy(block, block.is_on_host() && lands_as == BlockState::kSynced);
  }
}

void BlockTable::lose_all() {
  for (Entry& entry : entries_)
    if (entry.is_alive) lose_gpu_copy(entry.block, false);
}

/// `is_on_host`: the host's copy is complete. A step that was ordered behind a load writes tokens
/// that the host's copy lacks; if that is the only copy, the block is lost.
void BlockTable::lose_gpu_copy(Block& block, bool is_on_host) {
  free_gpu_slot(block);
  if (!is_on_host) free_host_slot(block);
  set_state(block, is_on_host ? BlockState::kHostOnly : BlockState::kLost);
}

}  // namespace braid::kv
