// The KV caches of one GPU's requests: the blocks of each, and the copies that it needs before it
// may run or pause. The blocks are those of kv::BlockTable, as in the rotation engine. The caller
// makes the copies, in virtual time.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/block_table.h"
#include "serving/simulator/prefix_cache.h"

namespace braid::serving {

/// The blocks of one request, in the order of its tokens.
struct Sequence {
  std::vector<kv::BlockId> blocks;
  uint32_t sealed = 0;  ///< full blocks, from the front
  uint32_t saved = 0;   ///< leading sealed blocks that are on the host or on their way
  uint32_t left = 0;    ///< paused: blocks that have left, from the first one after the chunks
  uint32_t shared_chunks = 0;  ///< chunks of the prefix cache, from the front
  bool in_use = false;
};

class Memory {
 public:
  using Blocks = std::vector<kv::BlockId>;
  using Chunks = std::vector<uint32_t>;

  /// `chunk_tokens` 0: no prefixes are shared.
  Memory(kv::BlockTable::Slots slots, uint32_t block_tokens, uint32_t chunk_tokens);

  kv::BlockTable& table() { return table_; }
  const kv::BlockTable& table() const { return table_; }
  /// Blocks that can be taken: free ones, those of unused chunks, and those on their way out.
  uint32_t available_blocks() const {
    return table_.gpu().free_count() + table_.gpu().fenced_count() + prefixes_.evictable_blocks() +
           leaving_;
  }

  void begin_step() { table_.begin_step(); }
  /// No work of the step runs any more.
  void end_step() { pass({.step = table_.step()}); }

  struct Need {
    uint32_t slots = 0;  ///< of those available
    uint32_t loads = 0;  ///< blocks that have to come from the host
    uint32_t cached_tokens = 0;
  };
  /// The blocks that a request needs to run with `tokens` tokens: a new one, and a paused one.
  Need need_to_start(uint32_t tokens, const Chunks& chunks) const;
  Need need_to_resume(Sequence& sequence, uint32_t tokens) const;

  /// Takes what the request needs. Takes nothing and returns false if slots are missing, or a copy
  /// under way has to end first. The caller copies `loads`, then calls `landed`.
  bool start(Sequence& sequence, uint32_t tokens, const Chunks& chunks, uint32_t& cached_tokens,
             Blocks& loads);
  bool resume(Sequence& sequence, uint32_t tokens, const Chunks& chunks, Blocks& loads);
  /// All loads have ended: the request runs from now on.
  void landed(Sequence& sequence, const Blocks& loads);
  /// Makes room for `tokens` tokens. False: too few slots.
  bool grow(Sequence& sequence, uint32_t tokens);
  /// `tokens` tokens are computed now; those of the prompt may be shared.
  void computed(Sequence& sequence, uint32_t tokens, uint32_t prompt_tokens, const Chunks& chunks);
  /// The request stops running with `tokens` computed tokens. The caller copies `saves`. False: the
  /// host is full, and nothing has changed.
  bool pause(Sequence& sequence, uint32_t tokens, const Chunks& chunks, Blocks& saves);
  /// The request ends, or its tokens are to be computed again.
  void drop(Sequence& sequence, const Chunks& chunks);

  /// True if it is paused, with no block on the GPU or on its way.
  bool is_away(const Sequence& sequence) const;

  /// Full blocks without a copy on the host, at most `most`.
  void eager_saves(uint32_t most, Blocks& saves);
  /// Ends a batch: all saves since the last call. Batches end in the order of their marks.
  kv::Mark end_batch() { return saves_++; }
  void saved(const Blocks& saves, kv::Mark mark);

  struct Shares {
    uint32_t freed = 0;    ///< blocks that pausing frees
    uint32_t unsaved = 0;  ///< blocks that pausing has to copy
  };
  Shares shares(Sequence& sequence, uint32_t tokens, const Chunks& chunks) const;

 private:
  void pass(const kv::Marks& passed) { table_.pass(passed); }
  bool make_free(uint32_t slots);
  bool begin_save(kv::BlockId id, Blocks& saves);
  void end_use(Sequence& sequence, const Chunks& chunks);
  uint32_t unsaved_blocks(Sequence& sequence, uint32_t tokens) const;
  uint32_t blocks_of(uint32_t tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }
  uint32_t chunk_blocks(const Sequence& sequence) const {
    return sequence.shared_chunks * prefixes_.blocks_per_chunk();
  }
  uint32_t matching_chunks(uint32_t tokens, const Chunks& chunks) const;

  kv::BlockTable table_;
  PrefixCache prefixes_;
  uint32_t block_tokens_;
  uint32_t leaving_ = 0;  // blocks that leave once their copy has landed
  kv::Mark saves_ = 1;    // of the batch that is being put together
  kv::Mark loads_ = 0;
};

}  // namespace braid::serving
