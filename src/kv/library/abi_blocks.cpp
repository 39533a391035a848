// The C interface: blocks, steps and plans.
#include "kv/library/abi.h"

using namespace braid::kv;
using namespace braid::kv::abi;
using braid::Result;
using braid::Status;

static_assert(BRAID_KV_DIRTY == static_cast<int>(BlockState::kDirty));
static_assert(BRAID_KV_SEALED == static_cast<int>(BlockState::kSealed));
static_assert(BRAID_KV_SYNCING == static_cast<int>(BlockState::kSyncing));
static_assert(BRAID_KV_SYNCED == static_cast<int>(BlockState::kSynced));
static_assert(BRAID_KV_HOST_ONLY == static_cast<int>(BlockState::kHostOnly));
static_assert(BRAID_KV_LOADING == static_cast<int>(BlockState::kLoading));
static_assert(BRAID_KV_LOST == static_cast<int>(BlockState::kLost));
static_assert(BRAID_KV_NOT_REFUSED == static_cast<int>(Refusal::kNone));
static_assert(BRAID_KV_UNKNOWN_BLOCK == static_cast<int>(Refusal::kUnknownBlock));
static_assert(BRAID_KV_WRONG_STATE == static_cast<int>(Refusal::kWrongState));
static_assert(BRAID_KV_IN_USE == static_cast<int>(Refusal::kInUse));
static_assert(BRAID_KV_SHARED == static_cast<int>(Refusal::kShared));
static_assert(BRAID_KV_COPYING == static_cast<int>(Refusal::kCopying));
static_assert(BRAID_KV_NO_GPU_SLOT == static_cast<int>(Refusal::kNoGpuSlot));
static_assert(BRAID_KV_NO_HOST_SLOT == static_cast<int>(Refusal::kNoHostSlot));
static_assert(BRAID_KV_STEP_NOT_ENDED == static_cast<int>(Refusal::kStepNotEnded));
static_assert(BRAID_KV_ORDERED == static_cast<int>(Landing::kOrdered));
static_assert(BRAID_KV_POLLED == static_cast<int>(Landing::kPolled));
static_assert(sizeof(BlockId) == sizeof(uint64_t));

namespace {

Result<Refusal> reopen(RotationEngine& rotation, BlockId id) {
  const RotationEngine::Reopened reopened = rotation.reopen(id);
  if (!reopened.failure.ok()) return reopened.failure;
  return reopened.refusal;
}

Result<Refusal> apply_to(RotationEngine& rotation, int operation, BlockId id) {
  switch (operation) {
    case BRAID_KV_ADD_REFERENCE: return rotation.add_reference(id);
    case BRAID_KV_RELEASE: return rotation.release(id);
    case BRAID_KV_BEGIN_USE: return rotation.begin_use(id);
    case BRAID_KV_END_USE: return rotation.end_use(id);
    case BRAID_KV_SEAL: return rotation.seal(id);
    case BRAID_KV_REOPEN: return reopen(rotation, id);
    case BRAID_KV_DROP_HOST: return rotation.drop_host(id);
    case BRAID_KV_LOSE: return rotation.lose(id);
  }
  return Refusal::kWrongState;
}

void take(const uint64_t* blocks, size_t count, std::vector<BlockId>& ids) {
  ids.clear();
  for (const uint64_t block : std::span(blocks, count)) ids.push_back(BlockId{block});
}

braid_status report_unknown(uint64_t block) {
  return report(BRAID_ERROR_ARGUMENT, "there is no block " + std::to_string(block));
}

const uint64_t* numbers(const std::vector<BlockId>& ids) {
  return reinterpret_cast<const uint64_t*>(ids.data());
}

braid_status check_plan(const braid_kv_plan* plan) {
  if (const braid_status wrong = check_struct(plan, "braid_kv_plan"); wrong != BRAID_OK)
    return wrong;
  if ((plan->evict == nullptr && plan->evict_count > 0) ||
      (plan->load == nullptr && plan->load_count > 0))
    return report(BRAID_ERROR_ARGUMENT, "braid_kv_plan: a list is null and has a count");
  if (plan->landing != BRAID_KV_ORDERED && plan->landing != BRAID_KV_POLLED)
    return report(BRAID_ERROR_ARGUMENT,
                  std::to_string(plan->landing) + " is not a braid_kv_landing");
  return BRAID_OK;
}

void hand_out(const Submitted& submitted, braid_kv& kv, braid_kv_submitted* answer) {
  kv.refused.clear();
  kv.refusals.clear();
  for (const auto& [id, refusal] : submitted.refused) {
    kv.refused.push_back(static_cast<uint64_t>(id));
    kv.refusals.push_back(static_cast<int>(refusal));
  }
  if (answer == nullptr) return;
  answer->down_bytes = submitted.down_bytes;
  answer->up_bytes = submitted.up_bytes;
  answer->evictions_left = submitted.evictions_left;
  answer->loads_left = submitted.loads_left;
  answer->refused = kv.refused.data();
  answer->refusals = kv.refusals.data();
  answer->refused_count = kv.refused.size();
}

}  // namespace

const char* braid_kv_refusal_words(int refusal) {
  if (refusal == BRAID_KV_FAILED) return "the call has failed";
  const bool is_known = BRAID_KV_NOT_REFUSED <= refusal && refusal < BRAID_KV_FAILED;
  return is_known ? refusal_words(static_cast<Refusal>(refusal)) : "unknown";
}

braid_status braid_kv_create(braid_kv* kv, uint64_t* block, int* refusal) {
  return guarded(kv, [&](braid_kv& engine) {
    if (block == nullptr) return report(BRAID_ERROR_ARGUMENT, "there is no place for the block");
    const RotationEngine::Created created = engine.rotation->create();
    if (refusal != nullptr) *refusal = static_cast<int>(created.refusal);
    if (!created.failure.ok()) return report_failure(created.failure);
    if (created.refusal != Refusal::kNone)
      return report(BRAID_ERROR_ARGUMENT, refusal_words(created.refusal));
    *block = static_cast<uint64_t>(created.id);
    return BRAID_OK;
  });
}

int braid_kv_apply(braid_kv* kv, int operation, const uint64_t* blocks, size_t count,
                   size_t* done) {
  if (done != nullptr) *done = 0;
  if (kv == nullptr || (blocks == nullptr && count > 0)) return BRAID_KV_WRONG_STATE;
  int answer = BRAID_KV_FAILED;
  guarded(kv, [&](const braid_kv& engine) {
    for (size_t i = 0; i < count; ++i) {
      const Result<Refusal> refusal = apply_to(*engine.rotation, operation, BlockId{blocks[i]});
      if (!refusal.ok()) return report_failure(refusal.status());
      if (refusal.value() != Refusal::kNone) {
        answer = static_cast<int>(refusal.value());
        return BRAID_OK;
      }
      if (done != nullptr) *done = i + 1;
    }
    answer = BRAID_KV_NOT_REFUSED;
    return BRAID_OK;
  });
  return answer;
}

uint64_t braid_kv_begin_step(braid_kv* kv) {
  uint64_t step = 0;
  guarded(kv, [&](braid_kv& engine) {
    step = engine.rotation->begin_step();
    return BRAID_OK;
  });
  return step;
}

braid_status braid_kv_end_step(braid_kv* kv) {
  return guarded(kv, [](braid_kv& engine) { return report_failure(engine.rotation->end_step()); });
}

braid_status braid_kv_submit(braid_kv* kv, const braid_kv_plan* plan,
                             braid_kv_submitted* submitted) {
  return guarded(kv, [&](braid_kv& engine) {
    if (const braid_status wrong = check_plan(plan); wrong != BRAID_OK) return wrong;
    if (submitted != nullptr)
      if (const braid_status wrong = check_struct(submitted, "braid_kv_submitted");
          wrong != BRAID_OK)
        return wrong;
    take(plan->evict, plan->evict_count, engine.evict);
    take(plan->load, plan->load_count, engine.load);
    const Submitted answer =
        engine.rotation->submit({.evict = engine.evict,
                                 .load = engine.load,
                                 .landing = static_cast<Landing>(plan->landing),
                                 .writes_through = plan->no_write_through == 0},
                                {plan->down_bytes, plan->up_bytes});
    hand_out(answer, engine, submitted);
    return report_failure(answer.failure);
  });
}

braid_status braid_kv_poll(braid_kv* kv, braid_kv_report* answer) {
  return guarded(kv, [&](braid_kv& engine) {
    if (answer != nullptr)
      if (const braid_status wrong = check_struct(answer, "braid_kv_report"); wrong != BRAID_OK)
        return wrong;
    const Report& polled = engine.rotation->poll();
    if (answer != nullptr) {
      answer->synced = numbers(polled.synced);
      answer->synced_count = polled.synced.size();
      answer->loaded = numbers(polled.loaded);
      answer->loaded_count = polled.loaded.size();
      answer->failed = numbers(polled.failed);
      answer->failed_count = polled.failed.size();
      answer->cause = polled.cause.c_str();
    }
    return report_failure(polled.failure);
  });
}

braid_status braid_kv_find(braid_kv* kv, uint64_t block, braid_kv_block* found) {
  return guarded(kv, [&](const braid_kv& engine) {
    if (const braid_status wrong = check_struct(found, "braid_kv_block"); wrong != BRAID_OK)
      return wrong;
    const Block* known = engine.rotation->table().find(BlockId{block});
    if (known == nullptr) return report_unknown(block);
    found->state = static_cast<int>(known->state);
    found->gpu_slot = known->gpu_slot;
    found->host_slot = known->host_slot;
    found->references = known->references;
    found->users = known->users;
    return BRAID_OK;
  });
}

braid_status braid_kv_gpu_slots(braid_kv* kv, const uint64_t* blocks, size_t count,
                                uint32_t* slots) {
  return guarded(kv, [&](const braid_kv& engine) {
    if (count > 0 && (blocks == nullptr || slots == nullptr))
      return report(BRAID_ERROR_ARGUMENT, "braid_kv_gpu_slots: a list is null and has a count");
    for (size_t i = 0; i < count; ++i) {
      const Block* known = engine.rotation->table().find(BlockId{blocks[i]});
      if (known == nullptr) return report_unknown(blocks[i]);
      slots[i] = known->gpu_slot;
    }
    return BRAID_OK;
  });
}

const void* braid_kv_host_block(braid_kv* kv, size_t rank, uint64_t block) {
  const void* found = nullptr;
  guarded(kv, [&](const braid_kv& engine) {
    if (rank < engine.rotation->rank_count())
      found = engine.rotation->host_block(rank, BlockId{block});
    return BRAID_OK;
  });
  return found;
}
