#include "serving/simulator/memory.h"

#include <algorithm>

namespace braid::serving {

using kv::BlockState;
using kv::Refusal;

Memory::Memory(kv::BlockTable::Slots slots, uint32_t block_tokens, uint32_t chunk_tokens)
    : table_(slots), prefixes_(table_, chunk_tokens / block_tokens), block_tokens_(block_tokens) {}

// The leading chunks that the cache holds whole, with no copy under way. At least one token is left
// to be computed, since the model's answer follows from the last one.
uint32_t Memory::matching_chunks(uint32_t tokens, const Chunks& chunks) const {
  const uint32_t chunk_tokens = prefixes_.blocks_per_chunk() * block_tokens_;
  if (chunk_tokens == 0) return 0;
  uint32_t count = 0;
  for (const uint32_t chunk : chunks) {
    if ((count + 1) * chunk_tokens >= tokens) break;
    const Blocks* blocks = prefixes_.find(chunk);
    if (blocks == nullptr || table_.find(blocks->front())->state == BlockState::kLoading) break;
    ++count;
  }
  return count;
}

Memory::Need Memory::need_to_start(uint32_t tokens, const Chunks& chunks) const {
  const uint32_t matching = matching_chunks(tokens, chunks);
  Need need{blocks_of(tokens), 0, matching * prefixes_.blocks_per_chunk() * block_tokens_};
  for (uint32_t index = 0; index < matching; ++index) {
    const kv::Block* first = table_.find(prefixes_.find(chunks[index])->front());
    if (first->state == BlockState::kHostOnly)
      need.loads += prefixes_.blocks_per_chunk();
    else if (first->users > 0)
      need.slots -= prefixes_.blocks_per_chunk();
    // A chunk without users counts as available, and is deducted from it.
  }
  return need;
}

// The blocks of a chunk come and go together. The blocks after the chunks belong to one request,
// and leave in their order.
Memory::Need Memory::need_to_resume(Sequence& sequence, uint32_t tokens) const {
  Need need{blocks_of(tokens), 0, 0};
  const uint32_t shared = chunk_blocks(sequence);
  for (uint32_t index = 0; index < shared; index += prefixes_.blocks_per_chunk()) {
    const kv::Block* first = table_.find(sequence.blocks[index]);
    if (first->state == BlockState::kHostOnly) need.loads += prefixes_.blocks_per_chunk();
    if (first->users > 0) need.slots -= prefixes_.blocks_per_chunk();
  }
  sequence.left = std::max(sequence.left, shared);
  while (sequence.left < sequence.blocks.size() &&
         table_.find(sequence.blocks[sequence.left])->state == BlockState::kHostOnly)
    ++sequence.left;
  need.loads += sequence.left - shared;
  for (size_t index = sequence.left; index < sequence.blocks.size(); ++index)
    need.loads += table_.find(sequence.blocks[index])->state == BlockState::kHostOnly;
  return need;
}

bool Memory::make_free(uint32_t slots) {
  while (table_.gpu().free_count() < slots)
    if (!prefixes_.evict_one()) return false;
  return true;
}

bool Memory::start(Sequence& sequence, uint32_t tokens, const Chunks& chunks,
                   uint32_t& cached_tokens, Blocks& loads) {
  const uint32_t matching = matching_chunks(tokens, chunks);
  const uint32_t per_chunk = prefixes_.blocks_per_chunk();
  // Mark them in use first: a chunk in use does not leave while room is made for the rest.
  for (uint32_t index = 0; index < matching; ++index) prefixes_.begin_use(chunks[index]);
  uint32_t wanted = blocks_of(tokens) - matching * per_chunk;
  for (uint32_t index = 0; index < matching; ++index)
    if (!table_.find(prefixes_.find(chunks[index])->front())->is_on_gpu()) wanted += per_chunk;
  if (!make_free(wanted)) {
    for (uint32_t index = 0; index < matching; ++index) prefixes_.end_use(chunks[index]);
    return false;
  }
  sequence.blocks.clear();
  for (uint32_t index = 0; index < matching; ++index)
    for (const kv::BlockId id : *prefixes_.find(chunks[index])) {
      (void)table_.add_reference(id);
      if (table_.find(id)->state == BlockState::kHostOnly) {
        (void)table_.begin_load(id, ++loads_, kv::Landing::kPolled);
        loads.push_back(id);
      } else {
        (void)table_.begin_use(id);
      }
      sequence.blocks.push_back(id);
    }
  while (sequence.blocks.size() < blocks_of(tokens)) sequence.blocks.push_back(table_.create().id);
  sequence.shared_chunks = matching;
  sequence.sealed = matching * per_chunk;
  sequence.in_use = true;
  cached_tokens = matching * per_chunk * block_tokens_;
  return true;
}

bool Memory::resume(Sequence& sequence, uint32_t tokens, const Chunks& chunks, Blocks& loads) {
  uint32_t wanted = blocks_of(tokens) - static_cast<uint32_t>(sequence.blocks.size());
  for (const kv::BlockId id : sequence.blocks) {
    const kv::Block* block = table_.find(id);
    if (block->state == BlockState::kLoading) return false;
    if (block->state == BlockState::kHostOnly) ++wanted;
  }
  const bool is_partial = sequence.sealed < sequence.blocks.size();
  if (is_partial && table_.find(sequence.blocks.back())->state == BlockState::kSyncing)
    return false;
  for (uint32_t index = 0; index < sequence.shared_chunks; ++index)
    prefixes_.begin_use(chunks[index]);
  if (!make_free(wanted)) {
    for (uint32_t index = 0; index < sequence.shared_chunks; ++index)
      prefixes_.end_use(chunks[index]);
    return false;
  }
  for (const kv::BlockId id : sequence.blocks) {
    const kv::Block* block = table_.find(id);
    if (block->state == BlockState::kHostOnly) {
      (void)table_.begin_load(id, ++loads_, kv::Landing::kPolled);
      loads.push_back(id);
    } else {
      if (block->is_leaving) --leaving_;
      (void)table_.begin_use(id);
    }
  }
  if (is_partial && table_.find(sequence.blocks.back())->state != BlockState::kLoading)
    (void)table_.reopen(sequence.blocks.back());
  while (sequence.blocks.size() < blocks_of(tokens)) sequence.blocks.push_back(table_.create().id);
  sequence.in_use = true;
  sequence.left = 0;
  return true;
}

void Memory::landed(Sequence& sequence, const Blocks& loads) {
  for (const kv::BlockId id : loads) {
    pass({.up = table_.find(id)->last.up});
    (void)table_.end_load(id, true);
    (void)table_.begin_use(id);
  }
  for (size_t index = sequence.sealed; index < sequence.blocks.size(); ++index)
    if (table_.find(sequence.blocks[index])->state == BlockState::kSynced)
      (void)table_.reopen(sequence.blocks[index]);
}

bool Memory::grow(Sequence& sequence, uint32_t tokens) {
  const uint32_t wanted = blocks_of(tokens);
  const auto has = static_cast<uint32_t>(sequence.blocks.size());
  if (wanted <= has) return true;
  if (!make_free(wanted - has)) return false;
  while (sequence.blocks.size() < wanted) sequence.blocks.push_back(table_.create().id);
  return true;
}

void Memory::computed(Sequence& sequence, uint32_t tokens, uint32_t prompt_tokens,
                      const Chunks& chunks) {
  for (; sequence.sealed < tokens / block_tokens_; ++sequence.sealed)
    (void)table_.seal(sequence.blocks[sequence.sealed]);
  const uint32_t per_chunk = prefixes_.blocks_per_chunk();
  if (per_chunk == 0) return;
  const uint32_t full = std::min(tokens, prompt_tokens) / (per_chunk * block_tokens_);
  while (sequence.shared_chunks < std::min<size_t>(full, chunks.size())) {
    const auto first = sequence.blocks.begin() + chunk_blocks(sequence);
    // If another request was first, this one keeps its own blocks from here on.
    if (!prefixes_.insert(chunks[sequence.shared_chunks], {first, first + per_chunk})) return;
    ++sequence.shared_chunks;
  }
}

bool Memory::begin_save(kv::BlockId id, Blocks& saves) {
  Refusal refusal = table_.begin_sync(id, saves_).refusal;
  while (refusal == Refusal::kNoHostSlot && prefixes_.forget_one())
    refusal = table_.begin_sync(id, saves_).refusal;
  if (refusal != Refusal::kNone) return false;
  saves.push_back(id);
  return true;
}

// Full blocks are saved in the order of their tokens, and stay saved. Only chunks are an exception:
// a later one may be saved before an earlier one, which was forgotten and came again.
uint32_t Memory::unsaved_blocks(Sequence& sequence, uint32_t tokens) const {
  const auto is_unsaved = [&](uint32_t index) {
    const BlockState state = table_.find(sequence.blocks[index])->state;
    return state == BlockState::kDirty || state == BlockState::kSealed;
  };
  while (sequence.saved < sequence.sealed && !is_unsaved(sequence.saved)) ++sequence.saved;
  const uint32_t shared = chunk_blocks(sequence);
  uint32_t unsaved = blocks_of(tokens) - std::max(sequence.saved, shared);
  for (uint32_t index = sequence.saved; index < shared; ++index) unsaved += is_unsaved(index);
  return unsaved;
}

Memory::Shares Memory::shares(Sequence& sequence, uint32_t tokens, const Chunks& chunks) const {
  Shares shares;
  shares.freed = static_cast<uint32_t>(sequence.blocks.size()) - chunk_blocks(sequence);
  for (uint32_t index = 0; index < sequence.shared_chunks; ++index)
    if (prefixes_.is_used_by_one(chunks[index])) shares.freed += prefixes_.blocks_per_chunk();
  shares.unsaved = unsaved_blocks(sequence, tokens);
  return shares;
}

bool Memory::pause(Sequence& sequence, uint32_t tokens, const Chunks& chunks, Blocks& saves) {
  const uint32_t kept = blocks_of(tokens);
  const uint32_t unsaved = unsaved_blocks(sequence, tokens);
  while (table_.host().free_count() < unsaved)
    if (!prefixes_.forget_one()) return false;
  for (uint32_t index = kept; index < sequence.blocks.size(); ++index) {
    (void)table_.end_use(sequence.blocks[index]);
    (void)table_.release(sequence.blocks[index]);
  }
  sequence.blocks.resize(kept);
  for (uint32_t index = sequence.sealed; index < kept; ++index)
    (void)table_.seal(sequence.blocks[index]);
  end_use(sequence, chunks);
  for (uint32_t index = 0; index < kept; ++index) {
    const kv::BlockId id = sequence.blocks[index];
    if (table_.find(id)->state == BlockState::kSealed) begin_save(id, saves);
    if (index < chunk_blocks(sequence)) continue;  // the cache decides when those leave
    if (table_.evict(id) == Refusal::kNone && table_.find(id)->is_leaving) ++leaving_;
  }
  return true;
}

void Memory::end_use(Sequence& sequence, const Chunks& chunks) {
  if (!sequence.in_use) return;
  sequence.in_use = false;
  for (const kv::BlockId id : sequence.blocks) (void)table_.end_use(id);
  for (uint32_t index = 0; index < sequence.shared_chunks; ++index)
    prefixes_.end_use(chunks[index]);
}

void Memory::drop(Sequence& sequence, const Chunks& chunks) {
  end_use(sequence, chunks);
  for (const kv::BlockId id : sequence.blocks) {
    const kv::Block* block = table_.find(id);
    if (block->is_leaving && block->references == 1) --leaving_;
    (void)table_.release(id);
  }
  sequence = {};
}

bool Memory::is_away(const Sequence& sequence) const {
  return std::all_of(
      sequence.blocks.begin() + chunk_blocks(sequence), sequence.blocks.end(),
      [this](kv::BlockId id) { return table_.find(id)->state == BlockState::kHostOnly; });
}

void Memory::eager_saves(uint32_t most, Blocks& saves) {
  while (saves.size() < most) {
    const auto next = table_.next_to_sync(table_.step());
    if (!next || !begin_save(*next, saves)) return;
  }
}

void Memory::saved(const Blocks& saves, kv::Mark mark) {
  for (const kv::BlockId id : saves) {
    const kv::Block* block = table_.find(id);
    if (block == nullptr) continue;  // its request has ended
    if (block->is_leaving) --leaving_;
    (void)table_.end_sync(id, true);
  }
  pass({.down = mark});
}

}  // namespace braid::serving
