// The reference model of kv_model: what each operation on the block table is to do, and a world in
// which steps and copies are carried out late, in any order that their streams and waits allow.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kv/block_table.h"
#include "kv/model_operations.h"

namespace braid::kv::test {

inline constexpr uint32_t kMostSlots = 7;  // of a side; an episode may have fewer

// What lies in a slot: whose content, and which writing of it.
struct Value {
  uint64_t name = 0;
  uint64_t version = 0;
  bool operator==(const Value&) const = default;
};

struct ModelBlock {
  BlockId id;
  Value value;
  BlockState state = BlockState::kDirty;
  bool is_leaving = false;
  BlockState lands_as = BlockState::kSynced;
  Landing landing = Landing::kPolled;
  uint32_t references = 1;
  uint32_t users = 1;
  Mark batch = 0;  // syncing, loading
};

// One thing that a stream does to slots.
struct Touch {
  bool is_gpu;
  Slot slot;
  std::optional<Value> expects;   // a step that reads
  std::optional<Value> writes;    // a step that writes
  std::optional<Slot> copies_to;  // a copy: to this slot of the other side
};
struct Pending {
  Mark mark;
  Marks after;
  std::vector<Touch> touches;
};
enum Stream { kSteps, kDowns, kUps, kStreams };

class World {
 public:
  explicit World(const BlockTable::Slots& slots) : table_(slots) {}

  /// The first thing that is wrong; empty: nothing.
  std::string run(const std::vector<Operation>& operations) {
    for (const Operation& operation : operations) {
      carry_out(operation);
      check();
      if (!wrong_.empty()) return kNames[static_cast<size_t>(operation.kind)] + (": " + wrong_);
    }
    quiet();
    return wrong_;
  }

 private:
  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  // ---- The reference model: what is allowed, and what becomes of a block ----

  void expect(bool allowed, Refusal refusal) {
    if (allowed == (refusal == Refusal::kNone)) return;
    fail(allowed ? std::string("refused: ") + refusal_words(refusal) : "was to be refused");
  }
  static BlockState& becoming(ModelBlock& block) {
    return block.state == BlockState::kLoading ? block.lands_as : block.state;
  }
  static bool is_dirty(const ModelBlock& block) {
    return block.state == BlockState::kDirty ||
           (block.state == BlockState::kLoading && block.lands_as == BlockState::kDirty);
  }
  static bool is_usable(const ModelBlock& block) {
    return block.state == BlockState::kDirty || block.state == BlockState::kSealed ||
           block.state == BlockState::kSyncing || block.state == BlockState::kSynced ||
           (block.state == BlockState::kLoading && block.landing == Landing::kOrdered);
  }

  void carry_out(const Operation& operation) {
    switch (operation.kind) {
      case Kind::kCreate: return create(operation.choice);
      case Kind::kStep: return step(operation.choice);
      case Kind::kAdvance: return advance(operation.choice);
      case Kind::kPoll: return poll(operation.choice);
      case Kind::kLoseGpu: return lose_gpu();
      default: break;
    }
    if (blocks_.empty()) return;
    ModelBlock& block = blocks_[operation.block % blocks_.size()];
    const BlockId id = block.id;
    const BlockState state = block.state;
    const bool is_copied = state == BlockState::kSyncing || state == BlockState::kLoading;
    bool allowed = false;
    switch (operation.kind) {
      case Kind::kShare:
        allowed = !is_dirty(block) && state != BlockState::kLost;
        expect(allowed, table_.add_reference(id));
        if (allowed) ++block.references;
        break;
      case Kind::kRelease:
        allowed = block.users < block.references;
        expect(allowed, table_.release(id));
        if (allowed && --block.references == 0)
          blocks_.erase(blocks_.begin() + (&block - blocks_.data()));
        break;
      case Kind::kUse:
        allowed = is_usable(block) && block.users < block.references;
        expect(allowed, table_.begin_use(id));
        if (allowed) ++block.users, block.is_leaving = false;
        break;
      case Kind::kEndUse:
        allowed = block.users > 0;
        expect(allowed, table_.end_use(id));
        if (allowed) --block.users;
        break;
      case Kind::kSeal:
        allowed = is_dirty(block);
        expect(allowed, table_.seal(id));
        if (allowed) becoming(block) = BlockState::kSealed;
        break;
      case Kind::kReopen:
        allowed = block.references == 1 && is_usable(block) && state != BlockState::kDirty &&
                  state != BlockState::kSyncing;
        expect(allowed, table_.reopen(id));
        if (allowed) becoming(block) = BlockState::kDirty;
        break;
      case Kind::kEvict:
        allowed =
            block.users == 0 && (state == BlockState::kSynced || state == BlockState::kSyncing);
        expect(allowed, table_.evict(id));
        if (!allowed) break;
        block.is_leaving = state == BlockState::kSyncing;
        if (!block.is_leaving) block.state = BlockState::kHostOnly;
        break;
      case Kind::kDropHost:
        allowed = state == BlockState::kSynced;
        expect(allowed, table_.drop_host(id));
        if (allowed) block.state = BlockState::kSealed;
        break;
      case Kind::kLose:
        allowed = block.users == 0 && !is_copied;
        expect(allowed, table_.lose(id));
        if (allowed) block.state = BlockState::kLost;
        break;
      case Kind::kSync: return sync(block, operation.choice);
      case Kind::kLoad: return load(block, operation.choice);
      default: break;
    }
  }

  // ---- What takes slots ----

  // Free slots only, or those that streams can be ordered behind.
  Marks behind(uint32_t choice) const { return choice % 2 == 0 ? Marks{} : enqueued_; }

  // Nothing that is under way touches the slot, but what `after` waits for.
  void check_taken(bool is_gpu, Slot slot, const Marks& after, uint32_t choice) {
    if (!behind(choice).covers(after)) fail("is to wait for more than was offered");
    for (int stream = 0; stream < kStreams; ++stream)
      for (const Pending& pending : streams_[stream])
        for (const Touch& touch : pending.touches) {
          const bool is_touched = (touch.is_gpu == is_gpu && touch.slot == slot) ||
                                  (touch.is_gpu != is_gpu && touch.copies_to == slot);
          if (is_touched && pending.mark > mark_of(stream, after))
            fail("a slot is handed out while it is used");
        }
  }
  static Mark mark_of(int stream, const Marks& marks) {
    return stream == kSteps ? marks.step : stream == kDowns ? marks.down : marks.up;
  }
  void expect_slot(const SlotPool& pool, Refusal refusal) {
    if (refusal != Refusal::kNone && pool.free_count() > 0) fail("refused although slots are free");
  }

  void create(uint32_t choice) {
    const auto created = table_.create(behind(choice));
    expect_slot(table_.gpu(), created.refusal);
    if (created.refusal != Refusal::kNone) return;
    check_taken(true, table_.find(created.id)->gpu_slot, created.after, choice);
    compute_after_.join(created.after);
    blocks_.push_back({.id = created.id, .value = {++names_, 0}});
  }

  // One copy in four fails: nothing, or all of it, is in the stream.
  static bool fails(uint32_t choice) { return choice % 16 < 4; }
  static bool is_enqueued(uint32_t choice) { return !fails(choice) || choice % 16 < 2; }

  void sync(ModelBlock& block, uint32_t choice) {
    const auto copy = table_.begin_sync(block.id, enqueued_.down + 1, behind(choice / 16));
    if (block.state != BlockState::kSealed) return expect(false, copy.refusal);
    expect_slot(table_.host(), copy.refusal);
    if (copy.refusal != Refusal::kNone) return;
    block.batch = ++enqueued_.down;
    Marks of_slot = copy.after;
    of_slot.step = 0;  // also of the step that wrote the block
    check_taken(false, copy.host_slot, of_slot, choice / 16);
    enqueue(kDowns, copy, {true, copy.gpu_slot, {}, {}, copy.host_slot}, choice);
    block.state = fails(choice) ? BlockState::kSealed : BlockState::kSyncing;
    if (fails(choice)) expect(true, table_.end_sync(block.id, false));
  }

  void load(ModelBlock& block, uint32_t choice) {
    const Landing landing = choice / 32 % 2 == 0 ? Landing::kOrdered : Landing::kPolled;
    const auto copy = table_.begin_load(block.id, enqueued_.up + 1, landing, behind(choice / 16));
    if (block.state != BlockState::kHostOnly) return expect(false, copy.refusal);
    expect_slot(table_.gpu(), copy.refusal);
    if (copy.refusal != Refusal::kNone) return;
    block.batch = ++enqueued_.up;
    check_taken(true, copy.gpu_slot, copy.after, choice / 16);
    enqueue(kUps, copy, {false, copy.host_slot, {}, {}, copy.gpu_slot}, choice);
    if (fails(choice)) return expect(true, table_.end_load(block.id, false));
    block.state = BlockState::kLoading;
    block.landing = landing;
    if (landing == Landing::kOrdered) compute_after_.up = block.batch;
  }

  void enqueue(Stream stream, const BlockTable::Copy& copy, const Touch& touch, uint32_t choice) {
    Pending pending{stream == kDowns ? enqueued_.down : enqueued_.up, {}, {}};
    if (is_enqueued(choice)) {
      pending.after = copy.after;
      pending.touches.push_back(touch);
    }
    streams_[stream].push_back(std::move(pending));
  }

  // ---- Time ----

  // Blocks in use are read; dirty ones are written. A new block is written at once.
  void step(uint32_t choice) {
    Pending pending{table_.begin_step(), compute_after_, {}};
    enqueued_.step = pending.mark;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      ModelBlock& block = blocks_[i];
      if (block.users == 0 || !is_usable(block)) continue;
      const Slot slot = table_.find(block.id)->gpu_slot;
      const bool is_new = block.value.version == 0;
      if (!is_new) pending.touches.push_back({true, slot, block.value, {}, {}});
      const bool may_write = is_dirty(block);
      if (!may_write || (!is_new && (choice >> i % 32 & 1) == 0)) continue;
      ++block.value.version;
      pending.touches.push_back({true, slot, {}, block.value, {}});
    }
    streams_[kSteps].push_back(std::move(pending));
  }

  void advance(uint32_t choice) {
    for (int i = 0; i < kStreams; ++i) {
      const int stream = static_cast<int>((choice + i) % kStreams);
      if (streams_[stream].empty() || !done_.covers(streams_[stream].front().after)) continue;
      const Pending pending = std::move(streams_[stream].front());
      streams_[stream].pop_front();
      for (const Touch& touch : pending.touches) carry_out(touch);
      (stream == kSteps ? done_.step : stream == kDowns ? done_.down : done_.up) = pending.mark;
      return;
    }
    for (const auto& stream : streams_)
      if (!stream.empty()) return fail("streams wait for each other");
  }

  void carry_out(const Touch& touch) {
    std::vector<Value>& here = touch.is_gpu ? on_gpu_ : on_host_;
    std::vector<Value>& there = touch.is_gpu ? on_host_ : on_gpu_;
    if (touch.expects && here[touch.slot] != *touch.expects) fail("a step reads what is not there");
    if (touch.writes) here[touch.slot] = *touch.writes;
    if (touch.copies_to) there[*touch.copies_to] = here[touch.slot];
  }

  // What has landed is told, and one copy in sixteen is told to have failed after all.
  void poll(uint32_t choice) {
    for (ModelBlock& block : blocks_) {
      choice = choice * 1664525 + 1013904223;
      if (choice >> 28 == 0 && end_badly(block)) continue;
      if (block.state == BlockState::kSyncing && block.batch <= done_.down) {
        expect(true, table_.end_sync(block.id, true));
        block.state = block.is_leaving ? BlockState::kHostOnly : BlockState::kSynced;
        block.is_leaving = false;
      } else if (block.state == BlockState::kLoading && block.batch <= done_.up) {
        expect(true, table_.end_load(block.id, true));
        block.state = block.lands_as;
        block.lands_as = BlockState::kSynced;
      }
    }
    table_.pass(done_);
  }

  /// A step that was ordered behind a load writes what the host's copy lacks.
  static bool is_whole_on_host(const ModelBlock& block) {
    return block.state == BlockState::kSynced || block.state == BlockState::kHostOnly ||
           (block.state == BlockState::kLoading && block.lands_as == BlockState::kSynced);
  }

  bool end_badly(ModelBlock& block) {
    if (block.state == BlockState::kSyncing) {
      expect(true, table_.end_sync(block.id, false));
      block.state = BlockState::kSealed;
    } else if (block.state == BlockState::kLoading && block.batch <= done_.up) {
      expect(true, table_.end_load(block.id, false));
      block.state = is_whole_on_host(block) ? BlockState::kHostOnly : BlockState::kLost;
    } else {
      return false;
    }
    block.is_leaving = false;
    block.lands_as = BlockState::kSynced;
    return true;
  }

  void lose_gpu() {
    for (auto& stream : streams_) stream.clear();
    done_ = enqueued_;
    table_.lose_gpu();
    if (table_.gpu().fenced_count() + table_.host().fenced_count() > 0)
      fail("slots are fenced although nothing runs");
    table_.pass(done_);
    on_gpu_.assign(kMostSlots, {});
    for (ModelBlock& block : blocks_) {
      block.state = is_whole_on_host(block) ? BlockState::kHostOnly : BlockState::kLost;
      block.is_leaving = false;
      block.lands_as = BlockState::kSynced;
    }
  }

  // ---- What must hold ----

  void check() {
    std::array<int, kMostSlots> gpu_owners{};
    std::array<int, kMostSlots> host_owners{};
    uint32_t gpu_owned = 0, host_owned = 0;
    if (table_.size() != blocks_.size()) return fail("blocks appear or disappear");
    for (const ModelBlock& model : blocks_) {
      const Block* block = table_.find(model.id);
      if (block == nullptr) return fail("a block that is needed has ended");
      if (block->state != model.state || block->is_leaving != model.is_leaving ||
          block->lands_as != model.lands_as)
        fail(std::string("is ") + state_name(block->state) + ", and was to be " +
             state_name(model.state));
      if (block->references != model.references || block->users != model.users)
        fail("references or users differ");
      if (block->gpu_slot != Block::kNoSlot && ++gpu_owned && ++gpu_owners[block->gpu_slot] > 1)
        fail("a slot of the GPU has two owners");
      if (block->host_slot != Block::kNoSlot && ++host_owned && ++host_owners[block->host_slot] > 1)
        fail("a slot of the host has two owners");
      if (model.state != BlockState::kLost && !block->is_on_gpu() && !block->is_on_host())
        fail("a block has no good copy");
    }
    if (table_.gpu().owned_count() != gpu_owned || table_.host().owned_count() != host_owned)
      fail("free, owned and fenced slots are not all slots");
  }

  void quiet() {
    while (wrong_.empty() && done_ != enqueued_) advance(0);
    poll(~0u);
    check();
    for (const ModelBlock& model : blocks_) {
      const Block* block = table_.find(model.id);
      if (block == nullptr || model.value.version == 0) continue;
      if (block->is_on_gpu() && on_gpu_[block->gpu_slot] != model.value)
        fail("the GPU has something else");
      if (block->is_on_host() && on_host_[block->host_slot] != model.value)
        fail("the host has something else");
    }
    if (table_.gpu().fenced_count() + table_.host().fenced_count() > 0)
      fail("slots are fenced although all has passed");
  }

  BlockTable table_;
  std::vector<ModelBlock> blocks_;
  std::array<std::deque<Pending>, kStreams> streams_;
  std::vector<Value> on_gpu_ = std::vector<Value>(kMostSlots);
  std::vector<Value> on_host_ = std::vector<Value>(kMostSlots);
  Marks enqueued_, done_, compute_after_;
  uint64_t names_ = 0;
  std::string wrong_;
};

}  // namespace braid::kv::test
