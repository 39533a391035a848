// Views of requests, as tests need them: each request says only what the test is about.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "serving/policies/make_policy.h"

namespace braid::serving {

inline constexpr int64_t kNow = 100'000'000;

inline RequestView waiting(RequestId id, uint32_t blocks, int64_t waited_us) {
  RequestView request;
  request.id = id;
  request.blocks = blocks;
  request.arrival_us = kNow - waited_us;
  request.context_tokens = 16 * blocks;
  request.output_tokens = request.expected_tokens = 100;
  request.length_rank = 100;
  return request;
}

inline RequestView rotary(RequestId id, uint32_t blocks, int64_t paused_us) {
  RequestView request = waiting(id, blocks, paused_us + 10'000'000);
  request.state = RequestState::kRotary;
  request.last_token_us = kNow - paused_us;
  request.load_blocks = blocks;
  request.generated_tokens = 10;
  return request;
}

inline RequestView running(RequestId id, uint32_t blocks, int64_t ran_us) {
  RequestView request = waiting(id, blocks, ran_us + 1'000'000);
  request.state = RequestState::kRunning;
  request.last_token_us = kNow;
  request.running_since_us = kNow - ran_us;
  request.freed_blocks = blocks;
  request.generated_tokens = 10;
  return request;
}

/// Of a GPU whose links can move everything within a step.
inline View view_of(const std::vector<RequestView>& requests, uint32_t free_blocks) {
  View view;
  view.now_us = kNow;
  view.step_us = 30'000;
  view.free_blocks = free_blocks;
  view.total_blocks = free_blocks;
  for (const RequestView& request : requests)
    if (request.state == RequestState::kRunning || request.state == RequestState::kLoading)
      view.total_blocks += request.blocks;
  view.block_bytes = 4 << 20;
  view.block_tokens = 16;
  view.budget = {uint64_t{1} << 40, uint64_t{1} << 40};
  view.requests = requests;
  return view;
}

inline std::unique_ptr<Policy> policy(std::string_view name, PolicyParameters parameters = {}) {
  return std::move(make_policy(name, parameters).value());
}

using Ids = std::vector<RequestId>;

}  // namespace braid::serving
