// The books of one GPU's KV caches: what is taken comes back, whatever happens to a request.
#include "serving/simulator/memory.h"

#include <gtest/gtest.h>

#include <string>

#include "serving/random.h"

namespace braid::serving {
namespace {

constexpr uint32_t kBlockTokens = 16, kChunkTokens = 64;  // 4 blocks a chunk

class MemoryTest : public ::testing::Test {
 protected:
  void step() {
    memory_.begin_step();
    memory_.end_step();
  }
  void save(const Memory::Blocks& blocks) {
    if (!blocks.empty()) memory_.saved(blocks, memory_.end_batch());
  }
  Sequence started(uint32_t tokens, const Memory::Chunks& chunks, uint32_t expected_cached = 0) {
    Sequence sequence;
    Memory::Blocks loads;
    uint32_t cached = 0;
    EXPECT_TRUE(memory_.start(sequence, tokens, chunks, cached, loads));
    EXPECT_EQ(cached, expected_cached);
    memory_.landed(sequence, loads);
    step();
    memory_.computed(sequence, tokens, tokens, chunks);
    return sequence;
  }
  void pause(Sequence& sequence, uint32_t tokens, const Memory::Chunks& chunks) {
    Memory::Blocks saves;
    ASSERT_TRUE(memory_.pause(sequence, tokens, chunks, saves));
    save(saves);
  }
  bool resume(Sequence& sequence, uint32_t tokens, const Memory::Chunks& chunks) {
    Memory::Blocks loads;
    if (!memory_.resume(sequence, tokens, chunks, loads)) return false;
    memory_.landed(sequence, loads);
    return true;
  }

  Memory memory_{{.gpu = 16, .host = 24}, kBlockTokens, kChunkTokens};
};

TEST_F(MemoryTest, APausedRequestTakesNothingOfTheGpu) {
  Sequence sequence = started(100, {});
  EXPECT_EQ(memory_.available_blocks(), 16u - 7);
  EXPECT_EQ(memory_.shares(sequence, 100, {}).freed, 7u);
  EXPECT_EQ(memory_.shares(sequence, 100, {}).unsaved, 7u);
  pause(sequence, 100, {});
  EXPECT_EQ(memory_.available_blocks(), 16u);
  const Memory::Need need = memory_.need_to_resume(sequence, 100);
  EXPECT_EQ(need.slots, 7u);
  EXPECT_EQ(need.loads, 7u);
  EXPECT_TRUE(resume(sequence, 113, {}));
  EXPECT_EQ(memory_.available_blocks(), 16u - 8);
}

// Its last block is still on the GPU: the copy is under way.
TEST_F(MemoryTest, WhatHasNotLeftYetIsNotLoaded) {
  Sequence sequence = started(100, {});
  pause(sequence, 100, {});
  EXPECT_EQ(memory_.need_to_resume(sequence, 100).loads, 7u);
  EXPECT_TRUE(resume(sequence, 100, {}));
  Memory::Blocks saves;
  ASSERT_TRUE(memory_.pause(sequence, 100, {}, saves));
  EXPECT_EQ(memory_.need_to_resume(sequence, 100).loads, 6u);
  EXPECT_FALSE(memory_.is_away(sequence));
  save(saves);
  EXPECT_EQ(memory_.need_to_resume(sequence, 100).loads, 7u);
  EXPECT_TRUE(memory_.is_away(sequence));
}

TEST_F(MemoryTest, WhatWasSavedBeforeLeavesWithoutACopy) {
  Sequence sequence = started(100, {});
  Memory::Blocks saves;
  memory_.eager_saves(100, saves);
  EXPECT_EQ(saves.size(), 6u);  // the full ones
  save(saves);
  EXPECT_EQ(memory_.shares(sequence, 100, {}).unsaved, 1u);
  saves.clear();
  ASSERT_TRUE(memory_.pause(sequence, 100, {}, saves));
  EXPECT_EQ(saves.size(), 1u);
}

// Nobody has copied its chunk yet: pausing it does.
TEST_F(MemoryTest, AnUnsavedChunkIsSavedToo) {
  Sequence sequence = started(100, {7});
  EXPECT_EQ(memory_.shares(sequence, 100, {7}).unsaved, 7u);
  Memory::Blocks saves;
  ASSERT_TRUE(memory_.pause(sequence, 100, {7}, saves));
  EXPECT_EQ(saves.size(), 7u);
}

TEST_F(MemoryTest, ASharedChunkStaysWithItsLastUser) {
  Sequence first = started(100, {7});
  Sequence second = started(100, {7}, kChunkTokens);
  EXPECT_EQ(memory_.available_blocks(), 16u - 7 - 3);
  EXPECT_EQ(memory_.shares(first, 100, {7}).freed, 3u);
  pause(first, 100, {7});
  EXPECT_EQ(memory_.available_blocks(), 16u - 7);
  EXPECT_EQ(memory_.shares(second, 100, {7}).freed, 7u);
  pause(second, 100, {7});
  EXPECT_EQ(memory_.available_blocks(), 16u);
}

// The chunk of a paused request has left for the host, which fills up: it is not forgotten.
TEST_F(MemoryTest, AChunkThatAPausedRequestNeedsIsNotForgotten) {
  Sequence paused = started(100, {7});
  pause(paused, 100, {7});
  Sequence large = started(16 * kBlockTokens, {});  // nothing else has room on the GPU
  EXPECT_EQ(memory_.need_to_resume(paused, 100).loads, 7u);
  pause(large, 16 * kBlockTokens, {});
  Sequence third = started(5 * kBlockTokens, {});
  Memory::Blocks saves;
  EXPECT_FALSE(memory_.pause(third, 5 * kBlockTokens, {}, saves));  // 7 + 16 of 24 are taken
  memory_.drop(third, {});
  EXPECT_TRUE(resume(paused, 100, {7}));
}

// Random lives of requests. At the end all is free, and at no time more is taken than there is.
TEST_F(MemoryTest, AllComesBack) {
  for (uint64_t seed = 1; seed <= 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Memory memory({.gpu = 40, .host = 60}, kBlockTokens, kChunkTokens);
    Random random(seed);
    struct Life {
      Sequence sequence;
      Memory::Chunks chunks;
      uint32_t tokens = 0;
      enum { kNew, kRuns, kPaused } state = kNew;
    };
    std::vector<Life> lives(12);
    for (Life& life : lives) {
      life.tokens = static_cast<uint32_t>(1 + random.below(250));
      for (uint32_t chunk = 0; chunk < life.tokens / kChunkTokens; ++chunk)
        life.chunks.push_back(static_cast<uint32_t>(random.below(2)) * 10 + chunk);
    }
    for (int operation = 0; operation < 400; ++operation) {
      Life& life = lives[random.below(lives.size())];
      Memory::Blocks loads, saves;
      uint32_t cached = 0;
      switch (life.state) {
        case Life::kNew:
          if (!memory.start(life.sequence, life.tokens, life.chunks, cached, loads)) break;
          memory.landed(life.sequence, loads);
          memory.begin_step();
          memory.end_step();
          memory.computed(life.sequence, life.tokens, life.tokens, life.chunks);
          life.state = Life::kRuns;
          break;
        case Life::kPaused:
          if (!memory.resume(life.sequence, life.tokens, life.chunks, loads)) break;
          memory.landed(life.sequence, loads);
          life.state = Life::kRuns;
          break;
        case Life::kRuns:
          if (random.below(3) == 0) {
            memory.drop(life.sequence, life.chunks);
            life.state = Life::kNew;
          } else if (random.below(2) == 0) {
            memory.eager_saves(static_cast<uint32_t>(random.below(20)), saves);
          } else {
            const uint32_t unsaved = memory.shares(life.sequence, life.tokens, life.chunks).unsaved;
            if (!memory.pause(life.sequence, life.tokens, life.chunks, saves)) break;
            EXPECT_EQ(saves.size(), unsaved);
            life.state = Life::kPaused;
          }
          if (!saves.empty()) memory.saved(saves, memory.end_batch());
      }
      ASSERT_LE(memory.available_blocks(), 40u);
    }
    for (Life& life : lives) memory.drop(life.sequence, life.chunks);
    EXPECT_EQ(memory.available_blocks(), 40u);
  }
}

}  // namespace
}  // namespace braid::serving
