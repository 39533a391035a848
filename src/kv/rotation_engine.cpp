#include "kv/rotation_engine.h"

#include <algorithm>
#include <string>

#include "base/try.h"
#include "host/random_number.h"
#include "kv/plan_parts.h"

namespace braid::kv {
namespace {

// How many blocks ahead to prefetch, so that a block's entry arrives from memory in time.
constexpr size_t kPrefetchDistance = 12;

// Always inlined: GCC takes a function that only prefetches for one without effect, and drops calls
// of it.
[[gnu::always_inline]] inline void prefetch_ahead(const BlockTable& table,
                                                  std::span<const BlockId> ids, size_t at) {
  if (at + kPrefetchDistance < ids.size()) table.prefetch(ids[at + kPrefetchDistance]);
}

}  // namespace

Result<std::unique_ptr<RotationEngine>> RotationEngine::open(const cuda::Driver& driver,
                                                             RotationOptions options,
                                                             std::unique_ptr<Copier> copier) {
  if (options.ranks.empty() && options.remote_ranks == 0)
    return Status::error("a rotation engine without a rank");
  if (options.remote_ranks > 0 && options.report_deadline_ms == 0)
    return Status::error("report_deadline_ms is 0 and there are ranks in other processes",
                         "Give the time after which a worker that does not report has ended");
  BRAID_TRY(options.layout.check(options.slots.gpu, options.slots.host));
  std::unique_ptr<RotationEngine> engine(new RotationEngine(options, std::move(copier)));
  if (!options.ranks.empty()) {
    BRAID_LET(gpus,
              GpuRank::open(
                  driver, {engine->layout_, options.slots, options.ranks, options.host_limit_bytes},
                  *engine->copier_));
    for (auto& gpu : gpus) engine->ranks_.push_back(std::move(gpu));
  }
  const uint64_t group = random_number();
  const GroupShape shape{options.slots.gpu, options.slots.host, options.layout.block_bytes()};
  for (uint32_t i = 0; i < options.remote_ranks; ++i) {
    auto remote = std::make_unique<RemoteRank>(RemoteRank::Options{
        group, static_cast<uint32_t>(engine->ranks_.size()), shape, options.report_deadline_ms});
    engine->remote_.push_back(remote.get());
    engine->ranks_.push_back(std::move(remote));
  }
  return engine;
}

RotationEngine::RotationEngine(RotationOptions options, std::unique_ptr<Copier> copier)
    : layout_(options.layout),
      block_bytes_(layout_.block_bytes() * (options.ranks.size() + options.remote_ranks)),
      first_part_blocks_(first_part_blocks(layout_)),
      copier_(std::move(copier)),
      table_(options.slots) {}

Status RotationEngine::check_order() const {
  BRAID_TRY(failure_);
  for (const RemoteRank* rank : remote_) BRAID_TRY(rank->check_not_sent());
  return {};
}

RotationEngine::Created RotationEngine::create() {
  if (Status refused = check_order(); !refused.ok()) return {.failure = std::move(refused)};
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
  if (Status refused = check_order(); !refused.ok()) return {.failure = std::move(refused)};
  if (const Refusal refusal = table_.check_reopen(id); refusal != Refusal::kNone)
    return {.refusal = refusal};
  const Marks behind{.down = table_.find(id)->last.down};
  for (const auto& rank : ranks_)
    if (Status ordered = rank->order_compute(behind); !ordered.ok())
      return {.failure = std::move(ordered)};
  return {.refusal = table_.reopen(id)};
}

Status RotationEngine::end_step() {
  BRAID_TRY(failure_);
  // All of them first: a rank whose step has ended lets later copies in.
  for (const RemoteRank* rank : remote_) BRAID_TRY(rank->check_sent(table_.step()));
  for (const auto& rank : ranks_) BRAID_TRY(rank->record_step(table_.step()));
  ended_step_ = table_.step();
  return {};
}

// A part down, a part up, and so on: each direction of the links begins while most of the plan is
// still to be listed.
Submitted RotationEngine::submit(const Plan& plan, const Budget& budget) {
  Submitted submitted;
  submitted.failure = check_order();
  if (!submitted.failure.ok()) return submitted;
  Course down{plan.evict, new_batch(Direction::kDown)};
  Course up{plan.load, new_batch(Direction::kUp)};
  while (!down.is_over || !up.is_over) {
    if (!down.is_over) evict_part(down, budget, submitted);
    if (!up.is_over) load_part(up, plan.landing, budget, down.is_over, submitted);
  }
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
  batch.copies.direction = direction;
  batch.copies.mark = (direction == Direction::kDown ? down_mark_ : up_mark_) + 1;
  batch.copies.after = {};
  batch.room_blocks = first_part_blocks_;
  batch.blocks.clear();
  batch.copies.slots.clear();
  return batch;
}

// ---- Down ----

void RotationEngine::evict_part(Course& course, const Budget& budget, Submitted& submitted) {
  while (course.next < course.ids.size()) {
    const BlockId id = course.ids[course.next];
    prefetch_ahead(table_, course.ids, course.next++);
    const Refusal refusal = begin_eviction(id, budget, course.batch, submitted);
    if (refusal != Refusal::kNone) submitted.refused.emplace_back(id, refusal);
    if (course.batch.room_blocks == 0)
      return begin_next_part(course.batch, Landing::kPolled, submitted);
  }
  end_course(course, Landing::kPolled, submitted);
}

Refusal RotationEngine::begin_eviction(BlockId id, const Budget& budget, Batch& batch,
                                       Submitted& submitted) {
  const Block* block = table_.find(id);
  if (block == nullptr) return Refusal::kUnknownBlock;
  if (block->state == BlockState::kHostOnly || block->state == BlockState::kLost ||
      block->users > 0)
    return Refusal::kNone;
  if (block->state != BlockState::kSealed) return table_.evict(id);
  if (submitted.down_bytes + block_bytes() > budget.down_bytes) {
    ++submitted.evictions_left;
    return Refusal::kNone;
  }
  if (block->sealed_in > ended_step_) return Refusal::kStepNotEnded;
  const Refusal refusal = add_sync(id, Then::kLeaves, batch);
  if (refusal == Refusal::kNone) submitted.down_bytes += block_bytes();
  return refusal;
}

// Of a block that no later step than `ended_step_` has written. The answer is not const, here and
// in `begin_load`: GCC keeps a const one in memory.
Refusal RotationEngine::add_sync(BlockId id, Then then, Batch& batch) {
  BlockTable::Copy copy = table_.begin_sync(id, batch.copies.mark, enqueued(), then);
  if (copy.refusal != Refusal::kNone) return copy.refusal;
  batch.add(id, copy);
  return Refusal::kNone;
}

void RotationEngine::write_through(const Budget& budget, Submitted& submitted) {
  Batch batch = new_batch(Direction::kDown);
  batch.room_blocks = std::numeric_limits<size_t>::max();  // in one part
  while (submitted.down_bytes + block_bytes() <= budget.down_bytes) {
    const auto id = table_.next_to_sync(ended_step_);
    if (!id || add_sync(*id, Then::kStays, batch) != Refusal::kNone) break;
    submitted.down_bytes += block_bytes();
  }
  enqueue(std::move(batch), Urgency::kBulk, Landing::kPolled, submitted);
}

// ---- Up ----

// Takes free slots first, in a batch that waits for nothing. Then fenced slots, behind the work
// that may still touch them, once no eviction of the plan can free another.
void RotationEngine::load_part(Course& course, Landing landing, const Budget& budget,
                               bool are_evicted, Submitted& submitted) {
  Batch& batch = course.batch;
  while (course.next < course.ids.size()) {
    const BlockId id = course.ids[course.next];
    const bool is_there = table_.keep(id) == Refusal::kNone;
    if (!is_there && submitted.up_bytes + block_bytes() > budget.up_bytes) break;
    if (!is_there && table_.gpu().free_count() == 0) {
      if (!batch.blocks.empty() && batch.copies.after == Marks{}) {
        enqueue(std::move(batch), Urgency::kUrgent, landing, submitted);
        batch = new_batch(Direction::kUp);
      }
      if (!are_evicted) return;
    }
    prefetch_ahead(table_, course.ids, course.next);
    if (is_there)
      there_.push_back(id);
    else if (begin_load(id, landing, batch, submitted) == Refusal::kNoGpuSlot)
      break;
    ++course.next;
    if (batch.room_blocks == 0) return begin_next_part(batch, landing, submitted);
  }
  submitted.loads_left = course.ids.size() - course.next;
  end_course(course, landing, submitted);
}

Refusal RotationEngine::begin_load(BlockId id, Landing landing, Batch& batch,
                                   Submitted& submitted) {
  BlockTable::Copy copy = table_.begin_load(id, batch.copies.mark, landing, enqueued());
  if (copy.refusal == Refusal::kNone) {
    batch.add(id, copy);
    submitted.up_bytes += block_bytes();
  } else if (copy.refusal != Refusal::kNoGpuSlot) {
    submitted.refused.emplace_back(id, copy.refusal);
  }
  return copy.refusal;
}

// ---- Both ----

void RotationEngine::enqueue(Batch batch, Urgency urgency, Landing landing, Submitted& submitted) {
  if (batch.blocks.empty()) {
    spare_.push_back(std::move(batch));
    return;
  }
  const bool is_down = batch.copies.direction == Direction::kDown;
  (is_down ? down_mark_ : up_mark_) = batch.copies.mark;
  batch.copies.urgency = urgency;
  Status failure;
  for (const auto& rank : ranks_) {
    Status copied = rank->copy(batch.copies);
    if (failure.ok()) failure = std::move(copied);
  }
  const Marks landed = is_down ? Marks{} : Marks{.up = batch.copies.mark};
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

void RotationEngine::begin_next_part(Batch& batch, Landing landing, Submitted& submitted) {
  const Direction direction = batch.copies.direction;
  const size_t next_blocks = part_growth(layout_) * batch.blocks.size();
  enqueue(std::move(batch), Urgency::kUrgent, landing, submitted);
  batch = new_batch(direction);
  batch.room_blocks = next_blocks;
}

void RotationEngine::end_course(Course& course, Landing landing, Submitted& submitted) {
  enqueue(std::move(course.batch), Urgency::kUrgent, landing, submitted);
  course.is_over = true;
}

void RotationEngine::end(const Batch& batch, bool ok) {
  const bool is_down = batch.copies.direction == Direction::kDown;
  for (size_t i = 0; i < batch.blocks.size(); ++i) {
    const BlockId id = batch.blocks[i];
    prefetch_ahead(table_, batch.blocks, i);
    const Refusal refusal = is_down ? table_.end_sync(id, ok) : table_.end_load(id, ok);
    // Do not report a block that was released meanwhile.
    if (refusal == Refusal::kNone && ok) (is_down ? report_.synced : report_.loaded).push_back(id);
  }
}

const Report& RotationEngine::poll() {
  report_.synced.clear();
  report_.loaded.clear();
  report_.failed.clear();
  report_.cause.clear();
  if (failure_.ok()) {
    Marks passed = enqueued();
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      Progress progress;
      if (const Status failure = ranks_[rank]->poll(progress); !failure.ok())
        fail(rank, failure, progress.is_host_lost);
      end_failed(rank, progress);
      passed = {std::min(passed.step, progress.passed.step),
                std::min(passed.down, progress.passed.down),
                std::min(passed.up, progress.passed.up)};
    }
    if (failure_.ok()) {
      land(passed);
      report_there();
    }
  }
  report_.failure = failure_;
  return report_;
}

void RotationEngine::land(const Marks& passed) {
  std::erase_if(under_way_, [&](Batch& batch) {
    const bool is_down = batch.copies.direction == Direction::kDown;
    if ((is_down ? passed.down : passed.up) < batch.copies.mark) return false;
    end(batch, true);
    spare_.push_back(std::move(batch));
    return true;
  });
  table_.pass(passed);
}

// A caller who waits for a block to be loaded does not know that it was there all along. Whoever
// has evicted it since does not wait.
void RotationEngine::report_there() {
  for (const BlockId id : there_)
    if (const Block* block = table_.find(id);
        block != nullptr && block->is_on_gpu() && !block->is_leaving)
      report_.loaded.push_back(id);
  there_.clear();
}

// Batches that have failed on one rank have failed. Their slots are fenced until the other ranks
// have carried them out.
void RotationEngine::end_failed(size_t rank, const Progress& progress) {
  for (const FailedBatch& failed : progress.failed)
    std::erase_if(under_way_, [&](Batch& batch) {
      if (batch.copies.direction != failed.direction || batch.copies.mark != failed.mark)
        return false;
      end(batch, false);
      report_.failed.insert(report_.failed.end(), batch.blocks.begin(), batch.blocks.end());
      if (report_.cause.empty())
        report_.cause = "rank " + std::to_string(rank) + ": " + failed.cause;
      spare_.push_back(std::move(batch));
      return true;
    });
}

void RotationEngine::fail(size_t rank, const Status& status, bool is_host_lost) {
  if (failure_.ok()) {
    failure_ = Status::of(
        status.code() == BRAID_ERROR_PEER ? BRAID_ERROR_PEER : BRAID_ERROR_CUDA,
        "rank " + std::to_string(rank) + " of the group has failed: " + status.message() +
            (is_host_lost ? ". Its host copies are gone with it: compute all blocks again"
                          : ". Blocks that the host has can be read there; compute the others "
                            "again"),
        status.cuda_result());
    under_way_.clear();
    table_.lose_gpu();
  }
  if (is_host_lost) table_.lose_all();
}

// ---- Ranks of other processes ----

Result<RemoteRank*> RotationEngine::remote(size_t rank) const {
  const size_t first = ranks_.size() - remote_.size();
  if (rank < ranks_.size() && rank >= first) return remote_[rank - first];
  return Status::error(rank < first ? "rank " + std::to_string(rank) + " is of this process"
                                    : "there is no rank " + std::to_string(rank) +
                                          " in a group of " + std::to_string(ranks_.size()),
                       "Ranks of other processes come after those of this one");
}

Result<std::span<const std::byte>> RotationEngine::take_commands(size_t rank) {
  BRAID_LET(there, remote(rank));
  BRAID_TRY(failure_);
  return there->take_commands(table_.step() > ended_step_ ? table_.step() : 0);
}

Status RotationEngine::give_report(size_t rank, std::span<const std::byte> bytes) {
  BRAID_LET(there, remote(rank));
  return there->give_report(bytes);
}

Carried RotationEngine::carried() const {
  Carried all = copier_ != nullptr ? copier_->carried() : Carried{};
  for (const RemoteRank* rank : remote_) {
    all.accelerated_bytes += rank->carried().accelerated_bytes;
    all.native_bytes += rank->carried().native_bytes;
  }
  return all;
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
