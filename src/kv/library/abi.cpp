// The C interface of include/braid/kv_abi.h: opening, errors and statistics of an engine.
#include "kv/library/abi.h"

#include <algorithm>

#include "base/try.h"
#include "kv/layout.h"
#include "kv/library/options.h"

using namespace braid::kv;
using namespace braid::kv::abi;
using braid::Status;

namespace {

Status open(const braid_kv_options& options, braid_kv& kv) {
  BRAID_LET(given, read(options, kv.driver));
  RotationOptions wanted{given.layout, given.slots, std::move(given.ranks)};
  wanted.remote_ranks = options.remote_rank_count;
  wanted.report_deadline_ms = options.report_deadline_ms;
  BRAID_LET(opened, RotationEngine::open(kv.driver, std::move(wanted), std::move(given.copier)));
  kv.rotation = std::move(opened);
  return {};
}

}  // namespace

const char* braid_kv_last_error() { return last_error(); }
int braid_kv_last_cuda_error() { return last_cuda_error(); }

braid_status braid_kv_segments(const braid_kv_model* model, int order, uint32_t gpu_slots,
                               braid_kv_segment* segments, size_t capacity, size_t* count) {
  return guarded([&] {
    if (model == nullptr || count == nullptr)
      return report(BRAID_ERROR_ARGUMENT, "a pointer that must be given is null");
    if (order != BRAID_KV_BLOCK_FIRST && order != BRAID_KV_LAYER_FIRST)
      return report(BRAID_ERROR_ARGUMENT, std::to_string(order) + " is not a braid_kv_order");
    const auto layout = Layout::of(
        {model->layers, model->kv_heads, model->head_size, model->element_bytes,
         model->block_tokens},
        order == BRAID_KV_BLOCK_FIRST ? GpuOrder::kBlockFirst : GpuOrder::kLayerFirst, gpu_slots);
    if (!layout.ok()) return report(layout.status());
    const std::vector<Segment>& all = layout.value().segments();
    *count = all.size();
    if (segments == nullptr && capacity == 0) return BRAID_OK;
    if (segments == nullptr || capacity < all.size())
      return report(BRAID_ERROR_ARGUMENT, "the list is null, or shorter than " +
                                              std::to_string(all.size()) + " segments");
    std::transform(all.begin(), all.end(), segments, [](const Segment& segment) {
      return braid_kv_segment{segment.gpu_base_bytes, segment.gpu_stride_bytes, segment.size_bytes};
    });
    return BRAID_OK;
  });
}

braid_status braid_kv_open(const braid_kv_options* options, braid_kv** kv) {
  return guarded([&] {
    if (kv == nullptr) return report(BRAID_ERROR_ARGUMENT, "there is no place for the engine");
    *kv = nullptr;
    if (const braid_status wrong = check_struct(options, "braid_kv_options"); wrong != BRAID_OK)
      return wrong;
    auto opened = std::make_unique<braid_kv>();
    if (const Status failed = open(*options, *opened); !failed.ok()) return report_failure(failed);
    *kv = opened.release();  // owner: the caller, until braid_kv_close
    return BRAID_OK;
  });
}

void braid_kv_close(braid_kv* kv) {
  if (kv == nullptr || !kv->process.is_this()) return;
  const std::unique_ptr<braid_kv> closed(kv);
}

void braid_kv_wait(braid_kv* kv) {
  guarded(kv, [](const braid_kv& engine) {
    engine.rotation->wait();
    return BRAID_OK;
  });
}

braid_status braid_kv_get_statistics(braid_kv* kv, braid_kv_statistics* statistics) {
  return guarded(kv, [&](const braid_kv& engine) {
    if (const braid_status wrong = check_struct(statistics, "braid_kv_statistics");
        wrong != BRAID_OK)
      return wrong;
    const BlockTable& table = engine.rotation->table();
    statistics->block_bytes = engine.rotation->block_bytes();
    static_assert(sizeof(braid_kv_statistics::blocks) == kBlockStates * sizeof(size_t));
    for (size_t state = 0; state < kBlockStates; ++state)
      statistics->blocks[state] = table.count(static_cast<BlockState>(state));
    statistics->gpu_slots_free = table.gpu().free_count();
    statistics->gpu_slots_fenced = table.gpu().fenced_count();
    statistics->host_slots_free = table.host().free_count();
    statistics->host_slots_fenced = table.host().fenced_count();
    const Carried carried = engine.rotation->carried();
    statistics->accelerated_bytes = carried.accelerated_bytes;
    statistics->native_bytes = carried.native_bytes;
    return BRAID_OK;
  });
}
