// A rank in another process, as the leader sees it. What the engine asks of it becomes commands,
// which the caller takes and sends along with the step; the worker (rank_worker.h) carries them out
// and reports.
//
//   leader                                         worker
//   submit, begin_step, create, seal ...
//   take_commands  ───────── commands ──────────>  apply: enqueues copies, orders the compute
//   stream end_step                                       (launches the step), end_step give_report
//   <───────── report ────────────  report poll
//
// A step's commands are taken once, after everything that the step needs was asked for. The rank
// has failed if its worker says so, or if commands have been with it for `report_deadline_ms` and
// no report speaks of them. Time is CLOCK_MONOTONIC also on the emulated server: it is a process
// that is waited for.
//
// Never waits. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kv/rank.h"
#include "kv/rank_messages.h"

namespace braid::kv {

class RemoteRank final : public Rank {
 public:
  struct Options {
    uint64_t group = 0;  ///< not 0
    uint32_t rank = 0;
    GroupShape shape{};
    uint64_t report_deadline_ms = 0;
  };

  explicit RemoteRank(const Options& options, Clock& clock = system_clock());

  /// Fails if the step that is open has been sent: its launch cannot come behind a copy that is
  /// made after that.
  Status check_not_sent() const;
  /// Fails if the step's commands have not been taken.
  Status check_sent(Mark step) const;

  Status copy(const CopyBatch& batch) override;
  /// For the next launch. Ask `check_not_sent` before.
  Status order_compute(const Marks& after) override;
  /// Fails as check_sent does. If it fails on one rank, no other rank's step may end.
  Status record_step(Mark step) override;
  Status poll(Progress& progress) override;
  void synchronize() override {}
  const std::byte* host_block(Slot) const override { return nullptr; }

  /// What was asked for since the last call; empty: nothing. Valid until the next call. `step`: the
  /// step that is open, or 0.
  std::span<const std::byte> take_commands(Mark step);
  /// Bytes of a worker's report. One that is older than the latest is ignored.
  Status give_report(std::span<const std::byte> bytes);

  /// What the worker's copier has carried, by its latest report.
  const Carried& carried() const { return report_.carried; }

 private:
  struct Sent {
    uint64_t number;
    uint64_t taken_ns;
  };

  const Options options_;
  Clock& clock_;
  Commands next_;
  uint64_t taken_ = 0;  // the number of the latest commands
  Mark sent_step_ = 0;  // the latest step whose commands were taken
  Mark ended_step_ = 0;
  std::vector<std::byte> bytes_;
  std::deque<Sent> sent_;  // no report speaks of them yet
  RankReport report_;      // the latest
  uint64_t polled_ = 0;    // the latest report that `poll` has told
};

}  // namespace braid::kv
