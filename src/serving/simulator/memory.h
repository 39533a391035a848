// The KV caches of one GPU's requests: which blocks each has, and what has to be copied so that it
// may run or pause. The blocks themselves are kv::BlockTable's, as in the rotation engine; who
// calls this copies, in virtual time.
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
  uint32_t saved = 0;   ///< of them, those at the front known to be on the host or on their way
  uint32_t left = 0;    ///< paused: so many from the front, behind the chunks, have left
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
  /// What can be taken: free, of chunks that nobody uses, and on its way out.
  uint32_t available_blocks() const {
    return table_.gpu().free_count() + table_.gpu().fenced_count() + prefixes_.evictable_blocks() +
           leaving_;
  }

  void begin_step() { table_.begin_step(); }
  /// Nothing of the step runs any more.
  void end_step() { pass({.step = table_.step()}); }

  struct Need {
    uint32_t slots = 0;  ///< of those available
    uint32_t loads = 0;  ///< blocks that have to come from the host
    uint32_t cached_tokens = 0;
  };
  /// What running so many tokens takes: of a request that has no blocks, and of one that paused.
  Need need_to_start(uint32_t tokens, const Chunks& chunks) const;
  Need need_to_resume(Sequence& sequence, uint32_t tokens) const;

  /// Takes what is needed. Nothing is taken where false is the answer: there are no slots, or a
  /// copy is under way that has to end first. `loads` are to be copied; then call `landed`.
  bool start(Sequence& sequence, uint32_t tokens, const Chunks& chunks, uint32_t& cached_tokens,
             Blocks& loads);
  bool resume(Sequence& sequence, uint32_t tokens, const Chunks& chunks, Blocks& loads);
  /// All loads have ended: it runs from now on.
  void landed(Sequence& sequence, const Blocks& loads);
  /// Room for so many tokens. False: there are no slots.
  bool grow(Sequence& sequence, uint32_t tokens);
  /// So many tokens are computed now; those of the prompt may be shared.
  void computed(Sequence& sequence, uint32_t tokens, uint32_t prompt_tokens, const Chunks& chunks);
  /// It stops running, `tokens` of it are computed. `saves` are to be copied. False: the host is
  /// full, and nothing has happened.
  bool pause(Sequence& sequence, uint32_t tokens, const Chunks& chunks, Blocks& saves);
  /// It ends, or its tokens are to be computed again.
  void drop(Sequence& sequence, const Chunks& chunks);

  /// It is paused, and nothing of it is on the GPU or on its way.
  bool is_away(const Sequence& sequence) const;

  /// Full blocks that the host has no copy of, at most `most`.
  void eager_saves(uint32_t most, Blocks& saves);
  /// What was to be saved since the last call is one batch; batches end in the order of their
  /// marks.
  kv::Mark end_batch() { return saves_++; }
  void saved(const Blocks& saves, kv::Mark mark);

  struct Shares {
    uint32_t freed = 0;    ///< what pausing gives back
    uint32_t unsaved = 0;  ///< what pausing has to copy
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
  uint32_t leaving_ = 0;  // blocks that leave when their copy has landed
  kv::Mark saves_ = 1;    // of the batch that is being put together
  kv::Mark loads_ = 0;
};

}  // namespace braid::serving
