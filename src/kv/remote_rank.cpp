#include "kv/remote_rank.h"

#include "base/try.h"

namespace braid::kv {

RemoteRank::RemoteRank(const Options& options, Clock& clock) : options_(options), clock_(clock) {
  next_.group = options.group;
  next_.rank = options.rank;
  next_.shape = options.shape;
}

Status RemoteRank::check_not_sent() const {
  if (sent_step_ <= ended_step_) return {};
  return Status::error("the commands of step " + std::to_string(sent_step_) +
                           " are taken, so it cannot come behind another copy",
                       "Call create, reopen and submit before them, or after end_step");
}

Status RemoteRank::copy(const CopyBatch& batch) {
  next_.batches.push_back(batch);
  return {};
}

Status RemoteRank::order_compute(const Marks& after) {
  next_.compute_after.join({.down = after.down, .up = after.up});
  return {};
}

Status RemoteRank::check_sent(Mark step) const {
  if (sent_step_ >= step) return {};
  return Status::error("the commands of step " + std::to_string(step) + " for rank " +
                           std::to_string(options_.rank) + " were not taken",
                       "Take them and send them with the step, then call end_step");
}

Status RemoteRank::record_step(Mark step) {
  BRAID_TRY(check_sent(step));
  ended_step_ = step;
  return {};
}

// A failed batch is named again until a report of it was polled: another report may come first.
std::span<const std::byte> RemoteRank::take_commands(Mark step) {
  next_.step = step > sent_step_ ? step : 0;
  if (next_.step == 0 && next_.batches.empty() && next_.compute_after == Marks{}) return {};
  next_.number = taken_ + 1;
  next_.report_seen = polled_;
  bytes_ = encode(next_);
  sent_.push_back({next_.number, clock_.now_ns()});
  taken_ = next_.number;
  if (next_.step != 0) sent_step_ = next_.step;
  next_.batches.clear();
  next_.compute_after = {};
  return bytes_;
}

Status RemoteRank::give_report(std::span<const std::byte> bytes) {
  Result<RankReport> decoded = decode_report(bytes);
  if (!decoded.ok()) return decoded.status();
  RankReport& report = decoded.value();
  if (report.rank != options_.rank)
    return Status::error("a report of rank " + std::to_string(report.rank) + " was given as rank " +
                             std::to_string(options_.rank) + "'s",
                         "Give each rank the reports of its own worker");
  if (report.group == 0) return {};  // it has had no commands yet
  if (report.group != options_.group || report.commands_done > taken_)
    return Status::error(
        "a report of rank " + std::to_string(report.rank) + " that belongs to another group",
        "Open a worker anew for each leader, and drop what is left of earlier "
        "reports");
  if (report.number <= report_.number) return {};
  report_ = std::move(report);
  while (!sent_.empty() && sent_.front().number <= report_.commands_done) sent_.pop_front();
  return {};
}

Status RemoteRank::poll(Progress& progress) {
  polled_ = report_.number;
  progress.passed = report_.passed;
  progress.failed = report_.failed;
  if (!report_.broken.empty())
    return Status::of(BRAID_ERROR_CUDA, report_.broken, report_.cuda_result);
  if (sent_.empty()) return {};
  const uint64_t waited_ms = (clock_.now_ns() - sent_.front().taken_ns) / 1'000'000;
  if (waited_ms < options_.report_deadline_ms) return {};
  progress.is_host_lost = true;
  return Status::of(BRAID_ERROR_PEER, "no report on commands " +
                                          std::to_string(sent_.front().number) + " has come for " +
                                          std::to_string(waited_ms) +
                                          " ms. Its process has ended, hangs, or refuses them");
}

}  // namespace braid::kv
