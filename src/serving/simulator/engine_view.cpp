// The engine's view for its policy, and its records.
#include <algorithm>
#include <utility>

#include "serving/simulator/engine.h"

namespace braid::serving {
namespace {

constexpr int64_t kSampleUs = 1'000'000;
constexpr size_t kTurns = 64;  // number of steps in which all waiting requests are updated

}  // namespace

Decision Engine::decide() {
  look();
  View view;
  view.now_us = now_us();
  view.step_us = step_us_;
  view.total_blocks = gpu_blocks_;
  view.free_blocks = memory_.available_blocks();
  view.host_free_blocks = memory_.table().host().free_count();
  view.block_bytes = block_bytes_;
  view.block_tokens = config_.model.kv.block_tokens;
  view.max_running = std::min(config_.max_running, config_.token_budget);
  const auto left = [&](double gbps, Direction direction) {
    const uint64_t budget = bytes_in_step(gbps);
    return budget - std::min(budget, transfers_.under_way_bytes(gpu_, direction));
  };
  view.budget = {left(config_.link.load_gbps, Direction::kLoad),
                 left(config_.link.save_gbps, Direction::kSave)};
  view.requests = views_;
  return policy_.decide(view);
}

// Updates the views. A waiting request does not change, nor does one whose blocks are all on the
// host, unless the CPU goes on with it, or prefixes are shared: then blocks come and go, and the
// earliest requests are updated in each step, the others in turns. Estimates from past requests
// change for all.
void Engine::look() {
  const bool shares = workload_.chunk_tokens > 0;
  const bool goes_on = policy_.eviction() == Eviction::kOffload;
  for (size_t index = 0; index < active_.size(); ++index) {
    RequestView& view = views_[index];
    const Run& run = runs_[active_[index]];
    const bool waits = run.state == RequestState::kWaiting;
    const bool is_away = run.state == RequestState::kRotary && !goes_on &&
                         view.load_blocks == run.sequence.blocks.size();
    const bool is_due =
        shares && (is_away || index < kTurns || index % kTurns == record_.steps % kTurns);
    if (view.state != run.state || !(waits || is_away) || is_due) view = view_of(active_[index]);
    view.expected_tokens = lengths_.expected(run.generated);
  }
}

void Engine::set_state(RequestId id, RequestState state) {
  const auto at = std::lower_bound(running_.begin(), running_.end(), id);
  const bool ran = at != running_.end() && *at == id;
  if (ran && state != RequestState::kRunning) running_.erase(at);
  if (!ran && state == RequestState::kRunning) running_.insert(at, id);
  runs_[id].state = state;
}

RequestView Engine::view_of(RequestId id) {
  Run& run = runs_[id];
  RequestView view;
  view.id = id;
  view.state = run.state;
  view.priority = run.request->priority;
  view.slo = run.request->slo;
  view.arrival_us = run.request->arrival_us;
  if (run.generated > 0) view.last_token_us = run.record.last_token_us;
  view.running_since_us = run.running_since_us;
  view.context_tokens = run.target();
  view.generated_tokens = run.generated;
  view.output_tokens = run.request->output_tokens;
  view.length_rank = run.request->length_rank;
  switch (run.state) {
    case RequestState::kWaiting: {
      const Memory::Need need = memory_.need_to_start(run.target(), run.request->chunks);
      view.blocks = need.slots;
      view.load_blocks = need.loads;
      break;
    }
    case RequestState::kRotary: {
      const Memory::Need need = memory_.need_to_resume(run.sequence, run.target());
      view.blocks = need.slots;
      view.load_blocks = need.loads;
      break;
    }
    case RequestState::kRunning: {
      const Memory::Shares shares = memory_.shares(run.sequence, run.computed, run.request->chunks);
      view.blocks = static_cast<uint32_t>(run.sequence.blocks.size());
      view.growth_blocks = config_.model.blocks_of(run.target()) - view.blocks;
      view.freed_blocks = shares.freed;
      view.save_blocks = shares.unsaved;
      break;
    }
    case RequestState::kLoading: view.blocks = static_cast<uint32_t>(run.sequence.blocks.size());
  }
  return view;
}

void Engine::take_sample() {
  if (now_us() < next_sample_us_) return;
  next_sample_us_ = now_us() + kSampleUs;
  Sample sample{now_us(), 1 - static_cast<double>(memory_.available_blocks()) / gpu_blocks_, 0, 0,
                0};
  for (const RequestId id : active_) {
    const RequestState state = runs_[id].state;
    ++(state == RequestState::kWaiting   ? sample.waiting
       : state == RequestState::kRunning ? sample.running
                                         : sample.paused);
  }
  record_.timeline.push_back(sample);
}

void Engine::add_open_gap(const RequestRecord& record) {
  const int64_t open_us = open_gap_us(record, record_.end_us);
  if (open_us > record.slo.tbt_us) add_gap(record, open_us);
}

RunResult Engine::finish() {
  RunResult result;
  record_.end_us = now_us();
  record_.from_us = count_from_us_;
  record_.until_us = runs_.empty() ? 0 : runs_.back().request->arrival_us;
  for (Run& run : runs_) {
    add_open_gap(run.record);
    record_.requests.push_back(run.record);
  }
  for (unsigned thousandth = 1; thousandth < 1000; ++thousandth)
    result.gap_quantiles_ms.push_back(static_cast<double>(gaps_us_.quantile(thousandth)) * 1e-3);
  result.metrics = summarize(record_, gaps_us_);
  result.record = std::move(record_);
  return result;
}

}  // namespace braid::serving
