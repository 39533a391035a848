#include "kv/rank_worker.h"

#include <algorithm>

#include "base/try.h"

namespace braid::kv {

Result<std::unique_ptr<RankWorker>> RankWorker::open(const cuda::Driver& driver,
                                                     const Options& options,
                                                     std::unique_ptr<Copier> copier) {
  BRAID_TRY(options.layout.check(options.slots.gpu, options.slots.host));
  BRAID_LET(ranks,
            GpuRank::open(driver, {options.layout, options.slots, {&options.gpu, 1}, {}}, *copier));
  auto& gpu = ranks.front();
  std::unique_ptr<RankWorker> worker(new RankWorker(options, std::move(copier), std::move(gpu)));
  return worker;
}

RankWorker::RankWorker(const Options& options, std::unique_ptr<Copier> copier,
                       std::unique_ptr<GpuRank> rank)
    : copier_(std::move(copier)),
      rank_(std::move(rank)),
      shape_{options.slots.gpu, options.slots.host, options.layout.block_bytes()} {
  report_.rank = options.rank;
}

Status RankWorker::check(const Commands& commands) const {
  if (commands.rank != report_.rank)
    return Status::error("commands for rank " + std::to_string(commands.rank) +
                             " came to the worker of rank " + std::to_string(report_.rank),
                         "Send each rank its own");
  if (!(commands.shape == shape_)) {
    const auto words = [](const GroupShape& shape) {
      return std::to_string(shape.gpu_slots) + " gpu_slots, " + std::to_string(shape.host_slots) +
             " host_slots and blocks of " + std::to_string(shape.block_bytes) + " bytes";
    };
    return Status::error(
        "the leader has " + words(commands.shape) + ", and this worker " + words(shape_),
        "Open both with the same");
  }
  if (report_.group != 0 && commands.group != report_.group)
    return Status::error("commands of another leader", "Open a worker anew for each leader");
  const uint64_t expected = report_.commands_done + 1;
  if (commands.number != expected)
    return Status::error(
        "commands " + std::to_string(commands.number) + " came where " + std::to_string(expected) +
            " were to come: " +
            (commands.number < expected ? "they have been carried out" : "some are missing"),
        "Apply everything that the leader gives, once, in its order");
  if (open_step_ != 0)
    return Status::error("step " + std::to_string(open_step_) + " has not ended",
                         "Call end_step once it is launched, before the next commands");
  for (const CopyBatch& batch : commands.batches) BRAID_TRY(check_slots(batch));
  return {};
}

Status RankWorker::check_slots(const CopyBatch& batch) const {
  const bool is_within = std::all_of(batch.slots.begin(), batch.slots.end(), [&](SlotPair pair) {
    return pair.gpu < shape_.gpu_slots && pair.host < shape_.host_slots;
  });
  return is_within ? Status() : Status::error("commands name a slot that the rank does not have");
}

Result<RankWorker::Applied> RankWorker::apply(std::span<const std::byte> bytes) {
  BRAID_TRY(broken_);
  BRAID_LET(commands, decode_commands(bytes));
  BRAID_TRY(check(commands));
  forget_failures(commands.report_seen);
  Applied applied{.step = commands.step};
  end(Status::error("the rank's commands were interrupted"));  // unless nothing throws
  report_.group = commands.group;
  report_.commands_done = commands.number;
  for (const CopyBatch& batch : commands.batches) {
    const Status copied = rank_->copy(batch);
    if (copied.ok()) continue;
    failed_.push_back({{batch.direction, batch.mark, copied.message()}, 0});
    ++applied.failed_batches;
  }
  end(rank_->order_compute(commands.compute_after));
  BRAID_TRY(broken_);
  open_step_ = commands.step;
  return applied;
}

// Not the caller's arguments are the cause, whatever the code of what has failed.
void RankWorker::end(const Status& broken) {
  broken_ =
      broken.ok() ? Status() : Status::of(BRAID_ERROR_CUDA, broken.message(), broken.cuda_result());
}

void RankWorker::forget_failures(uint64_t report_seen) {
  std::erase_if(failed_, [&](const Failed& failed) {
    return failed.reported_in != 0 && failed.reported_in <= report_seen;
  });
}

Status RankWorker::end_step() {
  BRAID_TRY(broken_);
  if (open_step_ == 0)
    return Status::error("no step is open", "Call end_step once for each step that apply returns");
  BRAID_TRY(rank_->record_step(open_step_));
  open_step_ = 0;
  return {};
}

std::span<const std::byte> RankWorker::report() {
  Progress progress;
  const Status polled = rank_->poll(progress);
  if (broken_.ok()) end(polled);
  if (polled.ok()) report_.passed = progress.passed;
  ++report_.number;
  report_.failed.clear();
  for (Failed& failed : failed_) {
    report_.failed.push_back(failed.batch);
    if (failed.reported_in == 0) failed.reported_in = report_.number;
  }
  report_.broken = broken_.message();
  report_.cuda_result = broken_.cuda_result();
  report_.carried = copier_->carried();
  bytes_ = encode(report_);
  return bytes_;
}

}  // namespace braid::kv
