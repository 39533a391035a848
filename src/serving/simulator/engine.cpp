#include "serving/simulator/engine.h"

#include <algorithm>
#include <string>
#include <utility>

namespace braid::serving {
namespace {

constexpr int64_t kFirstStepUs = 30'000;  // assumed until a step has been measured
// An engine with requests but nothing to compute or copy asks again after this time.
constexpr int64_t kRetryUs = 10'000;
constexpr uint32_t kMostRetries = 10'000;

simulation::Time picoseconds(int64_t us) { return us * 1'000'000; }

}  // namespace

Engine::Engine(simulation::Simulation& simulation, Transfers& transfers, int gpu,
               const EngineConfig& config, uint32_t gpu_blocks, const Policy& policy,
               const Workload& workload, double warm_up_share)
    : simulation_(simulation),
      transfers_(transfers),
      gpu_(gpu),
      config_(config),
      policy_(policy),
      workload_(workload),
      memory_({gpu_blocks, config.host_blocks()}, config.model.kv.block_tokens,
              workload.chunk_tokens),
      gpu_blocks_(gpu_blocks),
      block_bytes_(config.model.block_bytes()),
      runs_(workload.requests.size()),
      step_us_(kFirstStepUs),
      count_from_us_(static_cast<int64_t>(
          warm_up_share * static_cast<double>(workload.requests.back().arrival_us))) {
  for (size_t id = 0; id < runs_.size(); ++id) {
    const Request& request = workload.requests[id];
    runs_[id].request = &request;
    runs_[id].record.arrival_us = request.arrival_us;
    runs_[id].record.slo = request.slo;
  }
}

// ---- Events ----

void Engine::start() { schedule_arrival(); }

void Engine::schedule_arrival() {
  if (arrived_ == runs_.size()) return;
  simulation_.at(picoseconds(runs_[arrived_].request->arrival_us), [this] {
    active_.push_back(arrived_++);
    views_.push_back(view_of(active_.back()));
    schedule_arrival();
    wake();
  });
}

// One step sees everything that happens at one moment.
void Engine::wake() {
  if (in_step_ || wake_is_due_) return;
  wake_is_due_ = true;
  simulation_.at(simulation_.now(), [this] {
    wake_is_due_ = false;
    if (!in_step_) begin_step();
  });
}

void Engine::begin_step() {
  if (active_.empty() || !status_.ok()) return;
  take_sample();
  carry_out(decide());
  const Batch batch = make_batch();
  if (batch.tokens() == 0) return retry_or_give_up();
  idle_tries_ = 0;
  compute(batch);
}

// ---- Carrying out a decision ----

void Engine::carry_out(const Decision& decision) {
  Memory::Blocks saves;
  for (const RequestId id : decision.preempt) preempt(id, saves);
  submit_saves(std::move(saves), true);
  for (const RequestId id : running_) memory_.grow(runs_[id].sequence, runs_[id].target());
  for (const RequestId id : decision.admit)
    if (!admit(id)) break;
  if (config_.link.eager && policy_.eviction() == Eviction::kRotate) save_eagerly();
}

void Engine::preempt(RequestId id, Memory::Blocks& saves) {
  Run& run = runs_[id];
  if (policy_.eviction() == Eviction::kRecompute ||
      !memory_.pause(run.sequence, run.computed, run.request->chunks, saves))
    return recompute(id);
  set_state(id, RequestState::kRotary);
  if (!run.sequence.blocks.empty()) ++run.record.rotations;
}

void Engine::recompute(RequestId id) {
  Run& run = runs_[id];
  memory_.drop(run.sequence, run.request->chunks);
  run.computed = 0;
  set_state(id, RequestState::kWaiting);
  ++run.record.recomputes;
}

bool Engine::admit(RequestId id) {
  Run& run = runs_[id];
  Memory::Blocks loads;
  const auto& chunks = run.request->chunks;
  const bool is_taken =
      run.state == RequestState::kRotary
          ? memory_.resume(run.sequence, run.target(), chunks, loads)
          : memory_.start(run.sequence, run.target(), chunks, run.computed, loads);
  if (!is_taken) return false;
  if (loads.empty()) {
    begin_running(id);
    return true;
  }
  set_state(id, RequestState::kLoading);
  const uint64_t size_bytes = loads.size() * block_bytes_;
  record_.loaded_bytes += size_bytes;
  ++waited_for_;
  transfers_.submit(gpu_, Direction::kLoad, size_bytes, [this, id, loads = std::move(loads)] {
    memory_.landed(runs_[id].sequence, loads);
    begin_running(id);
    --waited_for_;
    if (in_step_)
      end_step();
    else
      wake();
  });
  return true;
}

void Engine::begin_running(RequestId id) {
  Run& run = runs_[id];
  set_state(id, RequestState::kRunning);
  run.running_since_us = now_us();
}

void Engine::submit_saves(Memory::Blocks saves, bool is_waited_for) {
  if (saves.empty()) return;
  const uint64_t size_bytes = saves.size() * block_bytes_;
  const kv::Mark mark = memory_.end_batch();
  record_.saved_bytes += size_bytes;
  waited_for_ += is_waited_for;
  transfers_.submit(gpu_, Direction::kSave, size_bytes,
                    [this, mark, is_waited_for, saves = std::move(saves)] {
                      memory_.saved(saves, mark);
                      waited_for_ -= is_waited_for;
                      if (in_step_)
                        end_step();
                      else
                        wake();
                    });
}

void Engine::save_eagerly() {
  const uint64_t budget = bytes_in_step(config_.link.save_gbps);
  const uint64_t under_way = transfers_.under_way_bytes(gpu_, Direction::kSave);
  if (under_way >= budget) return;
  Memory::Blocks saves;
  memory_.eager_saves(static_cast<uint32_t>((budget - under_way) / block_bytes_), saves);
  submit_saves(std::move(saves), false);
}

// ---- A step ----

// Takes requests that have one token to compute first, then prompts in the order of arrival.
Batch Engine::make_batch() {
  Batch batch;
  shares_.clear();
  const auto has_room = [&](const Run& run) {
    return run.sequence.blocks.size() * config_.model.kv.block_tokens >= run.target();
  };
  for (const RequestId id : running_) {
    const Run& run = runs_[id];
    if (run.target() - run.computed != 1 || batch.tokens() >= config_.token_budget ||
        !has_room(run))
      continue;
    ++batch.decodes;
    batch.decode_context += run.target();
    ++batch.sampled;
    shares_.push_back({id, 1});
  }
  for (const RequestId id : running_) {
    const Run& run = runs_[id];
    const uint32_t left = run.target() - run.computed;
    if (left <= 1) continue;
    const uint32_t room = config_.token_budget - std::min(config_.token_budget, batch.tokens());
    if (room == 0) break;
    const uint64_t chunk = std::min(left, room);
    batch.prefill_tokens += static_cast<uint32_t>(chunk);
    batch.prefill_pairs += chunk * run.computed + chunk * (chunk + 1) / 2;
    batch.sampled += chunk == left;
    shares_.push_back({id, static_cast<uint32_t>(chunk)});
  }
  if (policy_.eviction() == Eviction::kOffload) add_offloaded(batch);
  return batch;
}

// Adds requests on the host that have one token to compute, longest waiting first, as long as the
// CPU's attention takes no longer than the GPU's step. Their new tokens get blocks on the GPU once
// they come back.
void Engine::add_offloaded(Batch& batch) {
  cpu_attention_us_ = 0;
  std::vector<RequestId> ready;
  for (const RequestId id : active_) {
    const Run& run = runs_[id];
    if (run.state == RequestState::kRotary && run.target() - run.computed == 1 &&
        memory_.is_away(run.sequence))
      ready.push_back(id);
  }
  std::stable_sort(ready.begin(), ready.end(), [this](RequestId a, RequestId b) {
    return runs_[a].record.last_token_us < runs_[b].record.last_token_us;
  });
  const double bytes_in_us = kCpuAttentionGbps * 1e3;
  double read_bytes = 0;
  for (const RequestId id : ready) {
    if (batch.tokens() >= config_.token_budget) break;
    Batch larger = batch;
    ++larger.decodes;
    ++larger.sampled;
    const double bytes = read_bytes + static_cast<double>(runs_[id].target()) *
                                          static_cast<double>(config_.model.kv_token_bytes());
    const bool is_first = batch.tokens() == 0;
    if (!is_first && bytes > bytes_in_us * step_time_us(config_.model, config_.constants, larger))
      break;
    batch = larger;
    read_bytes = bytes;
    shares_.push_back({id, 1});
  }
  cpu_attention_us_ = static_cast<int64_t>(read_bytes / bytes_in_us);
}

void Engine::compute(const Batch& batch) {
  in_step_ = computing_ = true;
  step_began_us_ = now_us();
  memory_.begin_step();
  simulation_.after_us(std::max(step_time_us(config_.model, config_.constants, batch),
                                static_cast<double>(cpu_attention_us_)),
                       [this] { end_compute(); });
}

void Engine::end_compute() {
  computing_ = false;
  compute_ended_us_ = now_us();
  end_step();
}

void Engine::end_step() {
  if (computing_ || (config_.steps_wait_for_copies && waited_for_ > 0)) return;
  in_step_ = false;
  memory_.end_step();
  step_us_ = std::max<int64_t>(compute_ended_us_ - step_began_us_, 1);
  record_.busy_us += now_us() - step_began_us_;
  record_.stalled_us += now_us() - compute_ended_us_;
  ++record_.steps;
  bool any_ended = false;
  for (const auto& [id, tokens] : shares_) {
    Run& run = runs_[id];
    run.computed += tokens;
    if (run.state == RequestState::kRunning)
      memory_.computed(run.sequence, run.computed, run.request->prompt_tokens, run.request->chunks);
    if (run.computed == run.target()) emit_token(run);
    any_ended = any_ended || run.record.end_us != kNever;
  }
  if (any_ended) forget_finished();
  wake();
}

void Engine::forget_finished() {
  const auto is_finished = [this](RequestId id) { return runs_[id].record.end_us != kNever; };
  std::erase_if(running_, is_finished);
  std::erase_if(active_, is_finished);
  std::erase_if(views_, [&](const RequestView& view) { return is_finished(view.id); });
}

void Engine::add_gap(const RequestRecord& record, int64_t gap_us) {
  if (record.arrival_us >= count_from_us_) gaps_us_.add(static_cast<uint64_t>(gap_us));
}

void Engine::emit_token(Run& run) {
  RequestRecord& record = run.record;
  const int64_t now = now_us();
  if (record.first_token_us == kNever) {
    record.first_token_us = now;
  } else {
    const int64_t gap_us = now - record.last_token_us;
    record.longest_gap_us = std::max(record.longest_gap_us, gap_us);
    record.late_gaps += gap_us > record.slo.tbt_us;
    add_gap(record, gap_us);
  }
  record.last_token_us = now;
  ++record.tokens;
  ++run.generated;
  const bool counts = now >= count_from_us_ && now <= workload_.requests.back().arrival_us;
  record_.tokens += counts;
  if (run.generated < run.request->output_tokens) return;
  record.end_us = now;
  lengths_.add(run.generated);
  memory_.drop(run.sequence, run.request->chunks);
}

// Nothing can be computed now. Copies or arrivals wake the engine. Without these, only the passing
// of time may change the policy's decision.
void Engine::retry_or_give_up() {
  const bool copies = transfers_.under_way_bytes(gpu_, Direction::kLoad) > 0 ||
                      transfers_.under_way_bytes(gpu_, Direction::kSave) > 0;
  if (copies || retry_is_due_) return;
  if (++idle_tries_ > kMostRetries) {
    status_ = Status::error("policy '" + std::string(policy_.name()) + "' makes no progress: " +
                                std::to_string(active_.size()) + " requests, none of which runs",
                            "Give it a larger budget, or the GPU more memory");
    return;
  }
  retry_is_due_ = true;
  simulation_.at(simulation_.now() + picoseconds(kRetryUs), [this] {
    retry_is_due_ = false;
    wake();
  });
}

}  // namespace braid::serving
