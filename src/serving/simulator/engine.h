// One GPU's engine: its requests, and the loop of its steps.
#pragma once

#include <cstdint>
#include <vector>

#include "base/histogram.h"
#include "base/status.h"
#include "serving/policies/policy.h"
#include "serving/simulator/config.h"
#include "serving/simulator/length_history.h"
#include "serving/simulator/memory.h"
#include "serving/simulator/transfers.h"
#include "serving/workload.h"

namespace braid::serving {

class Engine {
 public:
  /// All borrowed objects outlive the engine.
  Engine(simulation::Simulation& simulation, Transfers& transfers, int gpu,
         const EngineConfig& config, uint32_t gpu_blocks, const Policy& policy,
         const Workload& workload, double warm_up_share);

  /// Schedules the arrivals as events of the simulation.
  void start();
  bool is_done() const { return arrived_ == workload_.requests.size() && active_.empty(); }
  /// Fails if the policy makes no progress.
  const Status& status() const { return status_; }
  RunResult finish();

 private:
  struct Run {  // of one request
    const Request* request = nullptr;
    RequestState state = RequestState::kWaiting;
    Sequence sequence{};
    uint32_t computed = 0;  // tokens whose keys and values are computed
    uint32_t generated = 0;
    int64_t running_since_us = 0;
    RequestRecord record{};

    /// All known tokens: the next one follows from them.
    uint32_t target() const { return request->prompt_tokens + generated; }
  };
  struct Share {  // of a step
    RequestId id;
    uint32_t tokens;
  };

  int64_t now_us() const { return simulation_.now() / 1'000'000; }
  /// The bytes of a step that takes as long as the last one.
  uint64_t bytes_in_step(double gbps) const {
    return static_cast<uint64_t>(gbps * 1e3 * static_cast<double>(step_us_));
  }
  void schedule_arrival();
  void wake();
  void begin_step();
  Decision decide();
  void look();
  RequestView view_of(RequestId id);
  void set_state(RequestId id, RequestState state);
  void carry_out(const Decision& decision);
  void preempt(RequestId id, Memory::Blocks& saves);
  void recompute(RequestId id);
  bool admit(RequestId id);
  void begin_running(RequestId id);
  void submit_saves(Memory::Blocks saves, bool is_waited_for);
  void save_eagerly();
  Batch make_batch();
  void add_offloaded(Batch& batch);
  void compute(const Batch& batch);
  void end_compute();
  void end_step();
  void emit_token(Run& run);
  void add_gap(const RequestRecord& record, int64_t gap_us);
  void add_open_gap(const RequestRecord& record);
  void forget_finished();
  void retry_or_give_up();
  void take_sample();

  simulation::Simulation& simulation_;
  Transfers& transfers_;
  const int gpu_;
  const EngineConfig& config_;
  const Policy& policy_;
  const Workload& workload_;
  Memory memory_;
  const uint32_t gpu_blocks_;
  uint64_t block_bytes_;

  std::vector<Run> runs_;           // by id
  std::vector<RequestId> active_;   // arrived and not finished, by arrival
  std::vector<RequestId> running_;  // the active requests in this state
  std::vector<RequestView> views_;  // of active_; views of waiting requests are kept
  std::vector<Share> shares_;       // of the step that runs
  int64_t cpu_attention_us_ = 0;    // of the step that runs: of requests whose blocks are away
  LengthHistory lengths_;
  size_t arrived_ = 0;
  bool in_step_ = false;
  bool computing_ = false;
  bool wake_is_due_ = false;
  bool retry_is_due_ = false;
  uint32_t waited_for_ = 0;  // copies
  uint32_t idle_tries_ = 0;
  int64_t step_us_;  // of the last step
  int64_t step_began_us_ = 0;
  int64_t compute_ended_us_ = 0;
  int64_t next_sample_us_ = 0;
  RunRecord record_;
  Histogram gaps_us_;
  const int64_t count_from_us_;
  Status status_;
};

}  // namespace braid::serving
