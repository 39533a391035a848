// Start here: which requests of an LLM server run, for C++ programs that link libbraid_serving.
//
//   auto opened = braid::SchedulingPolicy::open("braid");
//   if (!opened.ok()) return complain(opened.status().message());
//   const braid::SchedulingPolicy policy = std::move(opened).value();
//
//   auto decided = policy.decide(view);                // between two steps of the model
//   for (uint64_t id : decided.value().preempt) ...    // then grow the running requests
//   for (uint64_t id : decided.value().admit) ...      // until one finds too few free blocks
//
// serving_abi.h describes, once for both, the contents of a view, what to do with an answer,
// ownership, threads, and the section of the paper. docs/serving.md describes the policies.
//
// This is a header over that C interface, so that no C++ type crosses the library's border. Errors:
// Result. Times are microseconds, sizes are bytes. C++17 and newer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "braid/c_calls.h"
#include "braid/serving_abi.h"
#include "braid/status.h"

namespace braid {

class SchedulingPolicy : detail::CCalls<braid_serving_last_error> {
 public:
  using Parameters = braid_serving_parameters;

  enum class State {
    kWaiting = BRAID_SERVING_WAITING,
    kRunning = BRAID_SERVING_RUNNING,
    kRotary = BRAID_SERVING_ROTARY,
    kLoading = BRAID_SERVING_LOADING
  };

  /// The fields are described in serving_abi.h. A new request waits for its first token.
  struct Request : braid_serving_request {
    Request() : Request(0, State::kWaiting) {}
    Request(uint64_t its_id, State its_state) : braid_serving_request() {
      id = its_id;
      state = static_cast<int>(its_state);
      last_token_us = BRAID_SERVING_NO_TOKEN;
    }
  };

  struct View {
    int64_t now_us = 0;
    int64_t step_us = 0;        ///< how long the next step is expected to take
    uint32_t total_blocks = 0;  ///< on the GPU
    uint32_t free_blocks = 0;
    uint32_t host_free_blocks = 0;
    uint32_t max_running = 0;  ///< running and loading
    uint64_t block_bytes = 0;
    uint32_t block_tokens = 0;  ///< tokens that a block holds
    uint64_t load_bytes = 0;    ///< bytes that can come from the host by the end of the next step
    uint64_t save_bytes = 0;    ///< bytes that can go there by then
    std::vector<Request> requests = {};
  };

  struct Decision {
    std::vector<uint64_t> preempt;
    std::vector<uint64_t> admit;
    uint64_t load_bytes = 0;  ///< bytes to load for the admitted
    uint64_t save_bytes = 0;  ///< bytes to save for the preempted
  };

  static std::vector<std::string> names() {
    std::vector<std::string> all;
    while (const char* name = braid_serving_policy_name(all.size())) all.emplace_back(name);
    return all;
  }

  /// The parameters of SuperInfer, section 5.2.
  static Parameters default_parameters() {
    Parameters parameters;
    braid_serving_default_parameters(&parameters);
    return parameters;
  }

  static Result<SchedulingPolicy> open(const std::string& name) {
    return open(name, default_parameters());
  }
  static Result<SchedulingPolicy> open(const std::string& name, const Parameters& parameters) {
    braid_serving_policy* policy = nullptr;
    if (const Status failed = status_of(braid_serving_open(name.c_str(), &parameters, &policy));
        !failed.ok())
      return failed;
    return SchedulingPolicy(policy);
  }

  /// True if the policy keeps the KV cache of a preempted request on the host. False: it is
  /// computed again.
  bool keeps() const { return braid_serving_keeps(get()) != 0; }

  Result<Decision> decide(const View& view) const {
    const size_t count = view.requests.size();
    const braid_serving_view all{sizeof(braid_serving_view),
                                 view.now_us,
                                 view.step_us,
                                 view.total_blocks,
                                 view.free_blocks,
                                 view.host_free_blocks,
                                 view.max_running,
                                 view.block_bytes,
                                 view.load_bytes,
                                 view.save_bytes,
                                 view.requests.data(),
                                 count,
                                 view.block_tokens};
    Decision decision{std::vector<uint64_t>(count), std::vector<uint64_t>(count)};
    braid_serving_decision counts{};
    if (const Status failed = status_of(braid_serving_decide(get(), &all, decision.preempt.data(),
                                                             decision.admit.data(), &counts));
        !failed.ok())
      return failed;
    decision.preempt.resize(counts.preempt_count);
    decision.admit.resize(counts.admit_count);
    decision.load_bytes = counts.load_bytes;
    decision.save_bytes = counts.save_bytes;
    return decision;
  }

  /// For calling the C interface with the same policy; null after it was moved from.
  braid_serving_policy* get() const { return policy_.get(); }

 private:
  static_assert(sizeof(Request) == sizeof(braid_serving_request), "lists of them are the same");

  struct Close {
    void operator()(braid_serving_policy* policy) const { braid_serving_close(policy); }
  };

  explicit SchedulingPolicy(braid_serving_policy* policy) : policy_(policy) {}

  std::unique_ptr<braid_serving_policy, Close> policy_;
};

}  // namespace braid
