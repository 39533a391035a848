// Chunks that are the common beginnings of several prompts. The cache has a reference of its own to
// each block of a chunk. A chunk that no running request uses may leave the GPU, least recently
// used first: to the host if the host has a copy, otherwise for good.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kv/block_table.h"

namespace braid::serving {

class PrefixCache {
 public:
  PrefixCache(kv::BlockTable& table, uint32_t blocks_per_chunk)
      : table_(table), blocks_per_chunk_(blocks_per_chunk) {}

  uint32_t blocks_per_chunk() const { return blocks_per_chunk_; }

  /// The blocks of a chunk; null if the cache does not have it. Valid until the next operation.
  const std::vector<kv::BlockId>* find(uint32_t chunk) const;
  /// Adds a chunk with these sealed blocks; a running request uses it. False: the cache has it
  /// already.
  bool insert(uint32_t chunk, std::vector<kv::BlockId> blocks);
  void begin_use(uint32_t chunk);
  void end_use(uint32_t chunk);
  bool is_used_by_one(uint32_t chunk) const;

  /// Blocks on the GPU of chunks without users.
  uint32_t evictable_blocks() const {
    return static_cast<uint32_t>(idle_.size()) * blocks_per_chunk_;
  }
  /// Removes one chunk from the GPU. False: none can leave.
  bool evict_one();
  /// Forgets one chunk that is on the host alone. False: there is none.
  bool forget_one();

 private:
  struct Chunk {
    std::vector<kv::BlockId> blocks;
    uint32_t users = 0;
    uint64_t last_use = 0;
  };
  using ByLastUse = std::map<uint64_t, uint32_t>;

  bool leave(const Chunk& chunk);
  void release(uint32_t chunk);

  kv::BlockTable& table_;
  uint32_t blocks_per_chunk_;
  uint64_t uses_ = 0;
  std::unordered_map<uint32_t, Chunk> chunks_;
  ByLastUse idle_;     // on the GPU, without users
  ByLastUse on_host_;  // no longer on the GPU
};

}  // namespace braid::serving
