// The C interface: ranks in processes of their own, as their leader and as a worker.
#include <span>
#include <string>

#include "base/try.h"
#include "kv/library/abi.h"
#include "kv/library/options.h"

using namespace braid::kv;
using namespace braid::kv::abi;
using braid::Status;

namespace {

std::span<const std::byte> span_of(const void* bytes, size_t size_bytes) {
  return {static_cast<const std::byte*>(bytes), size_bytes};
}

braid_status hand_out(std::span<const std::byte> from, const void** bytes, size_t* size_bytes) {
  *bytes = from.data();
  *size_bytes = from.size();
  return BRAID_OK;
}

Status open(const braid_kv_options& options, uint32_t rank, braid_kv_worker& worker) {
  if (options.rank_count != 1 || options.remote_rank_count != 0)
    return Status::error("braid_kv_options: a worker has " + std::to_string(options.rank_count) +
                             " ranks, and " + std::to_string(options.remote_rank_count) +
                             " in other processes",
                         "Give the one that is of this process");
  BRAID_LET(given, read(options, worker.driver));
  BRAID_LET(opened,
            RankWorker::open(worker.driver, {given.layout, given.slots, given.ranks.front(), rank},
                             std::move(given.copier)));
  worker.worker = std::move(opened);
  return {};
}

}  // namespace

braid_status braid_kv_take_commands(braid_kv* kv, size_t rank, const void** bytes,
                                    size_t* size_bytes) {
  return guarded(
      kv,
      [&](braid_kv& engine) {
        const auto taken = engine.rotation->take_commands(rank);
        if (!taken.ok()) return report_failure(taken.status());
        return hand_out(taken.value(), bytes, size_bytes);
      },
      bytes, size_bytes);
}

braid_status braid_kv_give_report(braid_kv* kv, size_t rank, const void* bytes, size_t size_bytes) {
  return guarded(
      kv,
      [&](braid_kv& engine) {
        return report(engine.rotation->give_report(rank, span_of(bytes, size_bytes)));
      },
      bytes);
}

braid_status braid_kv_worker_open(const braid_kv_options* options, uint32_t rank,
                                  braid_kv_worker** worker) {
  return guarded([&] {
    if (worker == nullptr) return report(BRAID_ERROR_ARGUMENT, "there is no place for the worker");
    *worker = nullptr;
    if (const braid_status wrong = check_struct(options, "braid_kv_options"); wrong != BRAID_OK)
      return wrong;
    auto opened = std::make_unique<braid_kv_worker>();
    if (const Status failed = open(*options, rank, *opened); !failed.ok())
      return report_failure(failed);
    *worker = opened.release();  // owner: the caller, until braid_kv_worker_close
    return BRAID_OK;
  });
}

void braid_kv_worker_close(braid_kv_worker* worker) {
  if (worker == nullptr || !worker->process.is_this()) return;
  const std::unique_ptr<braid_kv_worker> closed(worker);
}

braid_status braid_kv_worker_apply(braid_kv_worker* worker, const void* bytes, size_t size_bytes,
                                   braid_kv_applied* applied) {
  return guarded(
      worker,
      [&](braid_kv_worker& rank) {
        if (const braid_status wrong = check_struct(applied, "braid_kv_applied"); wrong != BRAID_OK)
          return wrong;
        const auto done = rank.worker->apply(span_of(bytes, size_bytes));
        if (!done.ok()) return report_failure(done.status());
        applied->step = done.value().step;
        applied->failed_batches = done.value().failed_batches;
        return BRAID_OK;
      },
      bytes);
}

braid_status braid_kv_worker_end_step(braid_kv_worker* worker) {
  return guarded(worker,
                 [](braid_kv_worker& rank) { return report_failure(rank.worker->end_step()); });
}

braid_status braid_kv_worker_report(braid_kv_worker* worker, const void** bytes,
                                    size_t* size_bytes) {
  return guarded(
      worker,
      [&](braid_kv_worker& rank) { return hand_out(rank.worker->report(), bytes, size_bytes); },
      bytes, size_bytes);
}

void braid_kv_worker_wait(braid_kv_worker* worker) {
  guarded(worker, [](braid_kv_worker& rank) {
    rank.worker->wait();
    return BRAID_OK;
  });
}

const void* braid_kv_worker_host_block(braid_kv_worker* worker, uint32_t host_slot) {
  const void* found = nullptr;
  guarded(worker, [&](const braid_kv_worker& engine) {
    found = engine.worker->host_block(host_slot);
    return BRAID_OK;
  });
  return found;
}
