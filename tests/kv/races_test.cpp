// The dependency checker finds each of three races, and nothing in the same programs without them.
// A race is planted below the engine, by a driver that forgets waits, or says too early that events
// have passed. (Bytes may come out right either way: it is order that is checked.)
#include <algorithm>
#include <string>

#include "kv/rig.h"

namespace braid::kv::test {
namespace {

// One slot on the GPU, so that every block takes another's place.
class RacesTest : public KvTest {
 protected:
  void copy_what_a_step_writes() {
    (void)unused_block(1);
    rotation().submit({});
    settle();
  }
  void load_over_what_is_copied() {
    const BlockId cold = host_only_block(1);
    const BlockId hot = unused_block(2);
    rotation().submit({.evict = {&hot, 1}});
    rotation().poll();
    rotation().submit({.load = {&cold, 1}});
    settle();
    rotation().submit({.load = {&cold, 1}});
    read_in_a_step(cold, 1);
  }
  void load_over_what_is_read() {
    const BlockId cold = host_only_block(1);
    const BlockId hot = sealed_block(2);
    rotation().submit({});
    settle();
    read_in_a_step(hot, 2);
    (void)rotation().end_use(hot);
    rotation().submit({.evict = {&hot, 1}, .load = {&cold, 1}});
    read_in_a_step(cold, 1);
  }

  // If it is on the GPU.
  void read_in_a_step(BlockId id, uint64_t version) {
    rotation().begin_step();
    if (rotation().table().find(id)->gpu_slot != Block::kNoSlot) read(id, version);
    EXPECT_TRUE(rotation().end_step().ok());
  }

  bool has_conflict(const std::string& who, const std::string& with) const {
    const auto& all = checker_.conflicts();
    return std::any_of(all.begin(), all.end(), [&](const std::string& conflict) {
      return conflict.starts_with(who) && conflict.find(with) != std::string::npos;
    });
  }
  void open_for_races() { open({.slots = {1, 8}, .verifies = false}); }
};

// TearDown finds no conflict, and the bytes are right.
TEST_F(RacesTest, NoneInACopyOfABlockThatIsStillWritten) {
  open({.slots = {1, 8}});
  copy_what_a_step_writes();
}
TEST_F(RacesTest, NoneInASlotThatIsFreedByACopy) {
  open({.slots = {1, 8}});
  load_over_what_is_copied();
}
TEST_F(RacesTest, NoneInALoadIntoASlotThatIsRead) {
  open({.slots = {1, 8}});
  load_over_what_is_read();
}

TEST_F(RacesTest, ACopyOfABlockThatIsStillWritten) {
  open_for_races();
  checker_.forget_waits();
  copy_what_a_step_writes();
  EXPECT_TRUE(has_conflict("a batch", "reads what is written by a write of step"));
}

TEST_F(RacesTest, ASlotThatIsFreeWhileItIsCopied) {
  open_for_races();
  checker_.pass_events_early();
  load_over_what_is_copied();
  EXPECT_TRUE(has_conflict("an urgent batch", "writes what is read by an urgent batch"));
}

TEST_F(RacesTest, ALoadIntoASlotThatIsRead) {
  open_for_races();
  checker_.forget_waits();
  load_over_what_is_read();
  EXPECT_TRUE(has_conflict("an urgent batch", "writes what is read by a read of step"));
}

}  // namespace
}  // namespace braid::kv::test
