#include "serving/simulator/prefix_cache.h"

#include <utility>

namespace braid::serving {

const std::vector<kv::BlockId>* PrefixCache::find(uint32_t chunk) const {
  const auto found = chunks_.find(chunk);
  return found == chunks_.end() ? nullptr : &found->second.blocks;
}

bool PrefixCache::insert(uint32_t chunk, std::vector<kv::BlockId> blocks) {
  const auto [at, is_new] = chunks_.try_emplace(chunk);
  if (!is_new) return false;
  for (const kv::BlockId id : blocks) (void)table_.add_reference(id);
  at->second = {std::move(blocks), 1, ++uses_};
  return true;
}

void PrefixCache::begin_use(uint32_t chunk) {
  Chunk& used = chunks_.at(chunk);
  if (used.users++ == 0) {
    idle_.erase(used.last_use);
    on_host_.erase(used.last_use);
  }
  used.last_use = ++uses_;
}

void PrefixCache::end_use(uint32_t chunk) {
  Chunk& used = chunks_.at(chunk);
  used.last_use = ++uses_;
  if (--used.users > 0) return;
  const bool is_on_gpu = table_.find(used.blocks.front())->is_on_gpu();
  (is_on_gpu ? idle_ : on_host_).emplace(used.last_use, chunk);
}

bool PrefixCache::is_used_by_one(uint32_t chunk) const {
  const auto found = chunks_.find(chunk);
  return found != chunks_.end() && found->second.users == 1;
}

bool PrefixCache::evict_one() {
  for (auto at = idle_.begin(); at != idle_.end(); ++at) {
    const auto [last_use, number] = *at;
    const Chunk& chunk = chunks_.at(number);
    const bool is_needed = table_.find(chunk.blocks.front())->references > 1;
    if (leave(chunk))
      on_host_.emplace(last_use, number);
    else if (!is_needed)
      release(number);
    else
      continue;  // a paused request needs blocks that are not saved yet
    idle_.erase(at);
    return true;
  }
  return false;
}

bool PrefixCache::leave(const Chunk& chunk) {
  for (const kv::BlockId id : chunk.blocks) {
    const kv::BlockState state = table_.find(id)->state;
    if (state != kv::BlockState::kSynced && state != kv::BlockState::kHostOnly) return false;
  }
  for (const kv::BlockId id : chunk.blocks) (void)table_.evict(id);
  return true;
}

bool PrefixCache::forget_one() {
  for (auto at = on_host_.begin(); at != on_host_.end(); ++at) {
    const uint32_t number = at->second;
    if (table_.find(chunks_.at(number).blocks.front())->references > 1) continue;  // it is needed
    on_host_.erase(at);
    release(number);
    return true;
  }
  return false;
}

void PrefixCache::release(uint32_t chunk) {
  for (const kv::BlockId id : chunks_.at(chunk).blocks) (void)table_.release(id);
  chunks_.erase(chunk);
}

}  // namespace braid::serving
