// The reference model of kv_model: what each operation on the block table is to do, and a world in
// which steps and copies are carried out late, in any order that their streams and waits allow. One
// table serves several ranks, which lag behind each other, and of which one may fail to copy.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kv/block_table.h"
#include "kv/model_operations.h"
#include "kv/model_rank.h"

namespace braid::kv::test {

struct ModelBlock {
  BlockId id;
  Value value;
  BlockState state = BlockState::kDirty;
  bool is_leaving = false;
  BlockState lands_as = BlockState::kSynced;
  Landing landing = Landing::kPolled;
  uint32_t references = 1;
  uint32_t users = 1;
  Mark batch = 0;                    // syncing, loading
  std::optional<size_t> fails_on{};  // the rank that cannot make this copy, as a poll will tell
};

class World {
 public:
  World(const BlockTable::Slots& slots, size_t ranks) : table_(slots), ranks_(ranks) {}

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
      case Kind::kLoseAll: return lose_all();
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
      case Kind::kKeep:
        allowed = is_usable(block) && state != BlockState::kLoading;
        expect(allowed, table_.keep(id));
        if (allowed) block.is_leaving = false;
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
    for (const ModelRank& rank : ranks_)
      if (rank.is_touched(is_gpu, slot, after)) fail("a slot is handed out while it is used");
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
  // One of the others in four fails on one rank, which is told later.
  std::optional<size_t> fails_on(uint32_t choice) const {
    if (choice / 64 % 4 != 0) return std::nullopt;
    return choice / 256 % ranks_.size();
  }

  void sync(ModelBlock& block, uint32_t choice) {
    const Then then = choice / 32 % 2 == 0 ? Then::kStays : Then::kLeaves;
    const auto copy = table_.begin_sync(block.id, enqueued_.down + 1, behind(choice / 16), then);
    if (block.state != BlockState::kSealed || (then == Then::kLeaves && block.users > 0))
      return expect(false, copy.refusal);
    expect_slot(table_.host(), copy.refusal);
    if (copy.refusal != Refusal::kNone) return;
    block.batch = ++enqueued_.down;
    Marks of_slot = copy.after;
    of_slot.step = 0;  // also of the step that wrote the block
    check_taken(false, copy.host_slot, of_slot, choice / 16);
    block.fails_on = fails_on(choice);
    enqueue(kDowns, copy, {true, copy.gpu_slot, {}, {}, copy.host_slot}, choice);
    block.state = fails(choice) ? BlockState::kSealed : BlockState::kSyncing;
    block.is_leaving = then == Then::kLeaves && !fails(choice);
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
    block.fails_on = fails_on(choice);
    enqueue(kUps, copy, {false, copy.host_slot, {}, {}, copy.gpu_slot}, choice);
    if (fails(choice)) return expect(true, table_.end_load(block.id, false));
    block.state = BlockState::kLoading;
    block.landing = landing;
    if (landing == Landing::kOrdered) compute_after_.up = block.batch;
  }

  void enqueue(Stream stream, const BlockTable::Copy& copy, const Touch& touch, uint32_t choice) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      Pending pending{stream == kDowns ? enqueued_.down : enqueued_.up, {}, {}};
      if (is_enqueued(choice) && fails_on(choice) != rank) {
        pending.after = copy.after;
        pending.touches.push_back(touch);
      }
      ranks_[rank].enqueue(stream, std::move(pending));
    }
  }

  // ---- Time ----

  // Blocks in use are read; dirty ones are written. A new block is written at once. What a rank
  // reads of a block that did not come is nobody's.
  void step(uint32_t choice) {
    std::vector<Pending> pending(ranks_.size(), {table_.begin_step(), compute_after_, {}});
    enqueued_.step = pending.front().mark;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      ModelBlock& block = blocks_[i];
      if (block.users == 0 || !is_usable(block)) continue;
      const Slot slot = table_.find(block.id)->gpu_slot;
      const bool is_new = block.value.version == 0;
      const bool is_loading = block.state == BlockState::kLoading;
      for (size_t rank = 0; rank < ranks_.size(); ++rank)
        if (!is_new && !(is_loading && block.fails_on == rank))
          pending[rank].touches.push_back({true, slot, block.value, {}, {}});
      const bool may_write = is_dirty(block);
      if (!may_write || (!is_new && (choice >> i % 32 & 1) == 0)) continue;
      ++block.value.version;
      for (Pending& each : pending) each.touches.push_back({true, slot, {}, block.value, {}});
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      ranks_[rank].enqueue(kSteps, std::move(pending[rank]));
  }

  void advance(uint32_t choice) {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      ModelRank& rank = ranks_[(choice / 16 + i) % ranks_.size()];
      if (!rank.advance(choice)) continue;
      if (!rank.wrong().empty()) fail(rank.wrong());
      return;
    }
    if (!is_idle()) fail("streams wait for each other");
  }
  bool is_idle() const {
    return std::ranges::all_of(ranks_, [](const ModelRank& rank) { return rank.is_idle(); });
  }
  // By all ranks.
  Marks done() const {
    Marks all = ranks_.front().done();
    for (const ModelRank& rank : ranks_)
      all = {std::min(all.step, rank.done().step), std::min(all.down, rank.done().down),
             std::min(all.up, rank.done().up)};
    return all;
  }

  // What has landed is told, and what has failed on one rank, before its copies have ended on the
  // others or after. One copy in sixteen is told to have failed after all.
  void poll(uint32_t choice) {
    const Marks passed = done();
    for (ModelBlock& block : blocks_) {
      choice = choice * 1664525 + 1013904223;
      const bool has_ended =
          block.batch <= (block.state == BlockState::kSyncing ? passed.down : passed.up);
      const bool is_told = has_ended || (choice >> 27 & 1) == 0;
      if ((choice >> 28 == 0 || (block.fails_on && is_told)) && end_badly(block, has_ended))
        continue;
      if (block.fails_on || !has_ended) continue;
      if (block.state == BlockState::kSyncing) {
        expect(true, table_.end_sync(block.id, true));
        block.state = block.is_leaving ? BlockState::kHostOnly : BlockState::kSynced;
        block.is_leaving = false;
      } else if (block.state == BlockState::kLoading) {
        expect(true, table_.end_load(block.id, true));
        block.state = block.lands_as;
        block.lands_as = BlockState::kSynced;
      }
    }
    table_.pass(passed);
  }

  /// A step that was ordered behind a load writes what the host's copy lacks.
  static bool is_whole_on_host(const ModelBlock& block) {
    return block.state == BlockState::kSynced || block.state == BlockState::kHostOnly ||
           (block.state == BlockState::kLoading && block.lands_as == BlockState::kSynced);
  }

  bool end_badly(ModelBlock& block, bool has_ended) {
    if (block.state == BlockState::kSyncing) {
      expect(true, table_.end_sync(block.id, false));
      block.state = BlockState::kSealed;
    } else if (block.state == BlockState::kLoading && (has_ended || block.fails_on)) {
      expect(true, table_.end_load(block.id, false));
      block.state = is_whole_on_host(block) ? BlockState::kHostOnly : BlockState::kLost;
    } else {
      return false;
    }
    block.is_leaving = false;
    block.lands_as = BlockState::kSynced;
    block.fails_on.reset();
    return true;
  }

  void lose_gpu() {
    for (ModelRank& rank : ranks_) rank.lose_gpu(enqueued_);
    table_.lose_gpu();
    if (table_.gpu().fenced_count() + table_.host().fenced_count() > 0)
      fail("slots are fenced although nothing runs");
    table_.pass(done());
    for (ModelBlock& block : blocks_) {
      block.state = is_whole_on_host(block) ? BlockState::kHostOnly : BlockState::kLost;
      block.is_leaving = false;
      block.lands_as = BlockState::kSynced;
      block.fails_on.reset();
    }
  }
  void lose_all() {
    lose_gpu();
    table_.lose_all();
    for (ModelBlock& block : blocks_) block.state = BlockState::kLost;
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
    while (wrong_.empty() && !is_idle()) advance(0);
    poll(~0u);
    check();
    for (const ModelBlock& model : blocks_) {
      const Block* block = table_.find(model.id);
      if (block == nullptr || model.value.version == 0) continue;
      for (const ModelRank& rank : ranks_) {
        if (block->is_on_gpu() && rank.on_gpu(block->gpu_slot) != model.value)
          fail("a GPU has something else");
        if (block->is_on_host() && rank.on_host(block->host_slot) != model.value)
          fail("a host has something else");
      }
    }
    if (table_.gpu().fenced_count() + table_.host().fenced_count() > 0)
      fail("slots are fenced although all has passed");
  }

  BlockTable table_;
  std::vector<ModelBlock> blocks_;
  std::vector<ModelRank> ranks_;
  Marks enqueued_, compute_after_;
  uint64_t names_ = 0;
  std::string wrong_;
};

}  // namespace braid::kv::test
