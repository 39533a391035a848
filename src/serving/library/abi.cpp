// The C interface of include/braid/serving_abi.h.
#include "braid/serving_abi.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "abi/call.h"
#include "serving/policies/make_policy.h"

struct braid_serving_policy {
  std::unique_ptr<braid::serving::Policy> policy;
};

namespace {

using namespace braid::abi;
using namespace braid::serving;

static_assert(BRAID_SERVING_NO_TOKEN == kNoToken);

braid_status refuse(std::string message) {
  return report(BRAID_ERROR_ARGUMENT, std::move(message));
}

std::string of_request(const braid_serving_request& request, const std::string& what) {
  return "braid_serving_request " + std::to_string(request.id) + ": " + what;
}

bool is_time(int64_t time_us) {
  return -BRAID_SERVING_TIME_MAX_US <= time_us && time_us <= BRAID_SERVING_TIME_MAX_US;
}

// The GPU never has so many free blocks: a policy would preempt others for the request in every
// step.
std::string what_never_fits(const braid_serving_request& request, uint32_t total_blocks) {
  const bool is_running = request.state == BRAID_SERVING_RUNNING;
  const uint64_t blocks = uint64_t{request.blocks} + (is_running ? request.growth_blocks : 0);
  if (blocks <= total_blocks) return {};
  return of_request(request, "it takes " + std::to_string(blocks) + " blocks, and the GPU has " +
                                 std::to_string(total_blocks) + ". Refuse it, or cut it short");
}

// The fault of a request; empty if it is valid.
std::string what_is_wrong(const braid_serving_request& request, uint32_t total_blocks) {
  if (request.state < BRAID_SERVING_WAITING || request.state > BRAID_SERVING_LOADING)
    return of_request(request, std::to_string(request.state) + " is not a braid_serving_state");
  if (request.priority > UINT8_MAX)
    return of_request(request,
                      "its priority is " + std::to_string(request.priority) + ". Give 0 to 255");
  const bool has_times =
      is_time(request.ttft_objective_us) && is_time(request.tbt_objective_us) &&
      is_time(request.arrival_us) && is_time(request.running_since_us) &&
      (request.last_token_us == BRAID_SERVING_NO_TOKEN || is_time(request.last_token_us));
  if (!has_times)
    return of_request(request, "a time of it is beyond what can be added. Give at most " +
                                   std::to_string(BRAID_SERVING_TIME_MAX_US) +
                                   ", which is also no objective");
  if (!std::isfinite(request.length_rank))
    return of_request(request, "its length_rank is no number. Give 0 if there is none");
  return what_never_fits(request, total_blocks);
}

RequestView view_of(const braid_serving_request& request) {
  RequestView view;
  view.id = request.id;
  view.state = static_cast<RequestState>(request.state);
  view.priority = static_cast<uint8_t>(request.priority);
  view.slo = {request.ttft_objective_us, request.tbt_objective_us};
  view.arrival_us = request.arrival_us;
  view.last_token_us = request.last_token_us;
  view.running_since_us = request.running_since_us;
  view.blocks = request.blocks;
  view.growth_blocks = request.growth_blocks;
  view.load_blocks = request.load_blocks;
  view.freed_blocks = request.freed_blocks;
  view.save_blocks = request.save_blocks;
  view.context_tokens = request.context_tokens;
  view.generated_tokens = request.generated_tokens;
  view.output_tokens = request.output_tokens;
  view.expected_tokens = request.expected_tokens;
  view.length_rank = request.length_rank;
  return view;
}

View view_of(const braid_serving_view& given, std::span<const RequestView> requests) {
  View view;
  view.now_us = given.now_us;
  view.step_us = given.step_us;
  view.total_blocks = given.total_blocks;
  view.free_blocks = given.free_blocks;
  view.host_free_blocks = given.host_free_blocks;
  view.max_running = given.max_running;
  view.block_bytes = given.block_bytes;
  view.block_tokens = given.block_tokens;
  view.budget = {given.load_bytes, given.save_bytes};
  view.requests = requests;
  return view;
}

}  // namespace

void braid_serving_default_parameters(braid_serving_parameters* parameters) {
  if (parameters == nullptr) return;
  const PolicyParameters defaults;
  *parameters = {sizeof(braid_serving_parameters), defaults.lag.alpha,       defaults.lag.beta_tbt,
                 defaults.lag.beta_ttft,           defaults.transfer_blocks, defaults.late_only};
}

const char* braid_serving_policy_name(size_t index) {
  return index < policy_names().size() ? policy_names()[index].name : nullptr;
}

braid_status braid_serving_open(const char* name, const braid_serving_parameters* parameters,
                                braid_serving_policy** policy) {
  if (policy != nullptr) *policy = nullptr;
  return guarded([&] {
    if (name == nullptr || policy == nullptr) return refuse("a pointer that must be given is null");
    PolicyParameters wanted;
    if (parameters != nullptr) {
      if (const braid_status wrong = check_struct(parameters, "braid_serving_parameters");
          wrong != BRAID_OK)
        return wrong;
      wanted.lag = {parameters->alpha, parameters->beta_tbt, parameters->beta_ttft};
      wanted.transfer_blocks = parameters->transfer_blocks;
      wanted.late_only = parameters->late_only != 0;
    }
    auto made = make_policy(name, wanted);
    if (!made.ok()) return refuse(made.status().message());
    auto opened = std::make_unique<braid_serving_policy>();
    opened->policy = std::move(made).value();
    *policy = opened.release();
    return BRAID_OK;
  });
}

void braid_serving_close(braid_serving_policy* policy) {
  const std::unique_ptr<braid_serving_policy> owned(policy);
}

int braid_serving_keeps(const braid_serving_policy* policy) {
  return policy != nullptr && policy->policy->eviction() != Eviction::kRecompute;
}

braid_status braid_serving_decide(const braid_serving_policy* policy,
                                  const braid_serving_view* view, uint64_t* preempt,
                                  uint64_t* admit, braid_serving_decision* decision) {
  return guarded([&] {
    if (policy == nullptr || view == nullptr || decision == nullptr)
      return refuse("a pointer that must be given is null");
    if (const braid_status wrong = check_struct(view, "braid_serving_view"); wrong != BRAID_OK)
      return wrong;
    const bool has_lists = view->requests != nullptr && preempt != nullptr && admit != nullptr;
    if (view->request_count > 0 && !has_lists) return refuse("a list that must be given is null");
    if (view->block_bytes == 0) return refuse("braid_serving_view: block_bytes is 0");
    if (view->block_tokens == 0) return refuse("braid_serving_view: block_tokens is 0");
    if (!is_time(view->now_us) || !is_time(view->step_us))
      return refuse("braid_serving_view: a time of it is beyond what can be added");
    std::vector<RequestView> requests;
    requests.reserve(view->request_count);
    for (const braid_serving_request& request : std::span(view->requests, view->request_count)) {
      if (std::string wrong = what_is_wrong(request, view->total_blocks); !wrong.empty())
        return refuse(std::move(wrong));
      requests.push_back(view_of(request));
    }
    const Decision decided = policy->policy->decide(view_of(*view, requests));
    std::copy(decided.preempt.begin(), decided.preempt.end(), preempt);
    std::copy(decided.admit.begin(), decided.admit.end(), admit);
    *decision = {decided.preempt.size(), decided.admit.size(), decided.load_bytes,
                 decided.save_bytes};
    return BRAID_OK;
  });
}

const char* braid_serving_last_error(void) { return last_error(); }
