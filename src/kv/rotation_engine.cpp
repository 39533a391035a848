#include "kv/rotation_engine.h"

#include <algorithm>

#include "base/try.h"
#include "base/units.h"
#include "kv/host_memory.h"

namespace braid::kv {
namespace {

// How many blocks ahead to prefetch, so that a block's entry arrives from memory in time.
constexpr size_t kPrefetchDistance = 12;

// A plan goes in parts: the first blocks travel while the lists of the others are written. The
// first part is no smaller than this, so that every link carries some of it. Each further part is
// several times as large, so that a plan has few.
constexpr size_t kFirstPartCopies = 512;
constexpr uint64_t kFirstPartBytes = 32 << 20;
constexpr size_t kPartGrowth = 4;

// Always inlined: GCC takes a function that only prefetches for one without effect, and drops calls
// of it.
[[gnu::always_inline]] inline void prefetch_ahead(const BlockTable& table,
                                                  std::span<const BlockId> ids, size_t at) {
  if (at + kPrefetchDistance < ids.size()) table.prefetch(ids[at + kPrefetchDistance]);
}

// Before anything is pinned: what one rank has taken would be missing for the next.
Status check_host_memory(const RotationOptions& options) {
  const uint64_t wanted = options.layout.host_bytes(options.slots.host) * options.ranks.size();
  const uint64_t left =
      options.host_limit_bytes ? *options.host_limit_bytes : host_memory_left_bytes();
  if (wanted <= left) return {};
  const std::string pools = options.ranks.size() == 1
                                ? "the host pool is"
                                : std::to_string(options.ranks.size()) + " host pools are";
  return Status::error(pools + " to have " + format_size(wanted) + ", and the host has " +
                           format_size(left) + " left",
                       "Give fewer host slots");
}

}  // namespace

Result<std::unique_ptr<RotationEngine>> RotationEngine::open(const cuda::Driver& driver,
                                                             RotationOptions options,
                                                             std::unique_ptr<Copier> copier) {
  if (options.ranks.empty()) return Status::error("a rotation engine without a rank");
  if (options.slots.gpu == 0 || options.slots.host == 0)
    return Status::error("gpu_slots or host_slots is 0", "Give both sides room for blocks");
  BRAID_TRY(options.layout.check(options.slots.gpu, options.slots.host));
  for (const RankOptions& rank : options.ranks)
    if (rank.compute == nullptr || rank.compute == CU_STREAM_LEGACY)
      return Status::error("the compute stream is the legacy default stream",
                           "Run the model in a stream of its own");
  BRAID_TRY(check_host_memory(options));
  for (size_t i = 0; i < options.ranks.size(); ++i)
    BRAID_TRY(Rank::check_cache(driver, options.ranks[i], options.layout, options.slots.gpu));
  std::unique_ptr<RotationEngine> engine(new RotationEngine(options, std::move(copier)));
  for (const RankOptions& rank : options.ranks) {
    BRAID_LET(opened, Rank::open(driver, rank, engine->layout_, options.slots.host));
    engine->ranks_.push_back(std::move(opened));
  }
  return engine;
}

RotationEngine::RotationEngine(RotationOptions options, std::unique_ptr<Copier> copier)
    : layout_(options.layout), copier_(std::move(copier)), table_(options.slots) {}

RotationEngine::Created RotationEngine::create() {
  if (!failure_.ok()) return {.failure = failure_};
  const BlockTable::Created created = table_.create(enqueued());
  if (created.refusal != Refusal::kNone) return {.refusal = created.refusal};
  for (const auto& rank : ranks_) {
    const Status ordered = rank->order_compute(created.after);
    if (ordered.ok()) continue;
    (void)table_.end_use(created.id);
    (void)table_.release(created.id);
    return {.failure = ordered};
  }
  return {.id = created.id};
}

RotationEngine::Reopened RotationEngine::reopen(BlockId id) {
  if (!failure_.ok()) return {.failure = failure_};
  if (const Block* block = table_.find(id); block != nullptr)
    for (const auto& rank : ranks_)
      if (Status ordered = rank->order_compute({.down = block->last.down}); !ordered.ok())
        return {.failure = std::move(ordered)};
  return {.refusal = table_.reopen(id)};
}

Status RotationEngine::end_step() {
  BRAID_TRY(failure_);
  for (const auto& rank : ranks_) BRAID_TRY(rank->record_step(table_.step()));
  ended_step_ = table_.step();
  return {};
}

Submitted RotationEngine::submit(const Plan& plan, const Budget& budget) {
  Submitted submitted;
  if (!failure_.ok()) {
    submitted.failure = failure_;
    return submitted;
  }
  evict(plan, budget, submitted);
  load(plan, budget, submitted);
  // Write-through is not urgent: after a failure it may wait for the next call.
  if (plan.writes_through && submitted.failure.ok()) write_through(budget, submitted);
  return submitted;
}

RotationEngine::Batch RotationEngine::new_batch(Direction direction) {
  Batch batch;
  if (!spare_.empty()) {
    batch = std::move(spare_.back());
    spare_.pop_back();
  }
  batch.direction = direction;
  batch.mark = (direction == Direction::kDown ? down_mark_ : up_mark_) + 1;
  batch.after = {};
  batch.blocks_max = std::max<size_t>(
      {1, kFirstPartCopies / layout_.segments().size(), kFirstPartBytes / layout_.block_bytes()});
  batch.blocks.clear();
  batch.slots.clear();
  return batch;
}

// ---- Down ----

void RotationEngine::evict(const Plan& plan, const Budget& budget, Submitted& submitted) {
  Batch batch = new_batch(Direction::kDown);
  for (size_t i = 0; i < plan.evict.size(); ++i) {
    const BlockId id = plan.evict[i];
    prefetch_ahead(table_, plan.evict, i);
    const Block* block = table_.find(id);
    const bool is_copied =
        block != nullptr && block->state == BlockState::kSealed && block->users == 0;
    if (is_copied && submitted.down_bytes + block_bytes() > budget.down_bytes) {
      ++submitted.evictions_left;
      continue;
    }
    const Refusal refusal = begin_eviction(id, batch);
    if (refusal != Refusal::kNone)
      submitted.refused.emplace_back(id, refusal);
    else if (is_copied)
      submitted.down_bytes += block_bytes();
    enqueue_if_full(batch, Urgency::kUrgent, Landing::kPolled, submitted);
  }
  enqueue(std::move(batch), Urgency::kUrgent, Landing::kPolled, submitted);
}

Refusal RotationEngine::begin_eviction(BlockId id, Batch& batch) {
  const Block* block = table_.find(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (block->state == BlockState::kHostOnly || block->state == BlockState::kLost ||
      block->users > 0)
    return Refusal::kNone;
  if (block->state == BlockState::kSealed) {
    if (const Refusal refusal = add_sync(id, batch); refusal != Refusal::kNone) return refusal;
  }
  return table_.evict(id);
}

Refusal RotationEngine::add_sync(BlockId id, Batch& batch) {
  if (table_.find(id)->sealed_in > ended_step_) return Refusal::kStepNotEnded;
  const BlockTable::Copy copy = table_.begin_sync(id, batch.mark, enqueued());
  if (copy.refusal != Refusal::kNone) return copy.refusal;
  batch.after.join(copy.after);
  batch.blocks.push_back(id);
  batch.slots.push_back({copy.gpu_slot, copy.host_slot});
  return Refusal::kNone;
}

void RotationEngine::write_through(const Budget& budget, Submitted& submitted) {
  Batch batch = new_batch(Direction::kDown);
  while (submitted.down_bytes + block_bytes() <= budget.down_bytes) {
    const auto id = table_.next_to_sync(ended_step_);
    if (!id || add_sync(*id, batch) != Refusal::kNone) break;
    submitted.down_bytes += block_bytes();
  }
  enqueue(std::move(batch), Urgency::kBulk, Landing::kPolled, submitted);
}

// ---- Up ----

// Takes free slots first, in a batch that waits for nothing. Then fenced slots, behind the work
// that may still touch them.
void RotationEngine::load(const Plan& plan, const Budget& budget, Submitted& submitted) {
  Batch batch = new_batch(Direction::kUp);
  for (size_t i = 0; i < plan.load.size(); ++i) {
    const BlockId id = plan.load[i];
    prefetch_ahead(table_, plan.load, i);
    const Block* block = table_.find(id);
    if (block != nullptr && block->is_on_gpu()) continue;
    if (submitted.up_bytes + block_bytes() > budget.up_bytes) {
      submitted.loads_left = plan.load.size() - i;
      break;
    }
    if (table_.gpu().free_count() == 0 && !batch.blocks.empty() && batch.after == Marks{}) {
      enqueue(std::move(batch), Urgency::kUrgent, plan.landing, submitted);
      batch = new_batch(Direction::kUp);
    }
    const BlockTable::Copy copy = table_.begin_load(id, batch.mark, plan.landing, enqueued());
    if (copy.refusal == Refusal::kNoGpuSlot) {
      submitted.loads_left = plan.load.size() - i;
      break;
    }
    if (copy.refusal != Refusal::kNone) {
      submitted.refused.emplace_back(id, copy.refusal);
      continue;
    }
    batch.after.join(copy.after);
    batch.blocks.push_back(id);
    batch.slots.push_back({copy.gpu_slot, copy.host_slot});
    submitted.up_bytes += block_bytes();
    enqueue_if_full(batch, Urgency::kUrgent, plan.landing, submitted);
  }
  enqueue(std::move(batch), Urgency::kUrgent, plan.landing, submitted);
}

// ---- Both ----

void RotationEngine::enqueue(Batch batch, Urgency urgency, Landing landing, Submitted& submitted) {
  if (batch.blocks.empty()) {
    spare_.push_back(std::move(batch));
    return;
  }
  const bool is_down = batch.direction == Direction::kDown;
  (is_down ? down_mark_ : up_mark_) = batch.mark;
  Status failure;
  for (const auto& rank : ranks_) {
    Status copied =
        rank->copy(batch.direction, batch.mark, batch.after, batch.slots, *copier_, urgency);
    if (failure.ok()) failure = std::move(copied);
  }
  const Marks landed = is_down ? Marks{} : Marks{.up = batch.mark};
  if (landing == Landing::kOrdered)
    for (const auto& rank : ranks_)
      if (failure.ok()) failure = rank->order_compute(landed);
  if (!failure.ok()) {
    (is_down ? submitted.down_bytes : submitted.up_bytes) -= batch.blocks.size() * block_bytes();
    end(batch, false);
    spare_.push_back(std::move(batch));
    if (submitted.failure.ok()) submitted.failure = std::move(failure);
    return;
  }
  under_way_.push_back(std::move(batch));
}

// Begins the next part of the plan.
void RotationEngine::enqueue_if_full(Batch& batch, Urgency urgency, Landing landing,
                                     Submitted& submitted) {
  if (batch.blocks.size() < batch.blocks_max) return;
  const Direction direction = batch.direction;
  const size_t next_max = kPartGrowth * batch.blocks_max;
  enqueue(std::move(batch), urgency, landing, submitted);
  batch = new_batch(direction);
  batch.blocks_max = next_max;
}

void RotationEngine::end(const Batch& batch, bool ok) {
  const bool is_down = batch.direction == Direction::kDown;
  for (size_t i = 0; i < batch.blocks.size(); ++i) {
    const BlockId id = batch.blocks[i];
    prefetch_ahead(table_, batch.blocks, i);
    const Refusal refusal = is_down ? table_.end_sync(id, ok) : table_.end_load(id, ok);
    // Do not report a block that was released meanwhile.
    if (refusal == Refusal::kNone && ok) (is_down ? report_.synced : report_.loaded).push_back(id);
  }
}

Status RotationEngine::look(Marks& passed) {
  passed = {ended_step_, down_mark_, up_mark_};
  for (const auto& rank : ranks_) {
    Marks of_rank;
    BRAID_TRY(rank->poll(of_rank));
    passed = {std::min(passed.step, of_rank.step), std::min(passed.down, of_rank.down),
              std::min(passed.up, of_rank.up)};
  }
  return {};
}

const Report& RotationEngine::poll() {
  report_.synced.clear();
  report_.loaded.clear();
  if (failure_.ok()) {
    Marks passed;
    if (const Status failure = look(passed); failure.ok()) {
      std::erase_if(under_way_, [&](Batch& batch) {
        const Mark mark = batch.direction == Direction::kDown ? passed.down : passed.up;
        if (mark < batch.mark) return false;
        end(batch, true);
        spare_.push_back(std::move(batch));
        return true;
      });
      table_.pass(passed);
    } else {
      fail(failure);
    }
  }
  report_.failure = failure_;
  return report_;
}

void RotationEngine::fail(const Status& status) {
  failure_ = Status::error("a GPU of the group has failed: " + status.message(),
                           "Blocks that the host has can be read there; compute the others again");
  under_way_.clear();
  table_.lose_gpu();
}

void RotationEngine::wait() {
  for (const auto& rank : ranks_) rank->synchronize();
}

const std::byte* RotationEngine::host_block(size_t rank, BlockId id) const {
  const Block* block = table_.find(id);
  return block != nullptr && block->is_on_host() ? ranks_[rank]->host_block(block->host_slot)
                                                 : nullptr;
}

}  // namespace braid::kv
