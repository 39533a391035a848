// What a scheduling decision costs the CPU: each policy, at 1,000 requests of which a third runs, a
// third waits and a third is paused, on a GPU without a free block.
//
//   serving_decide [REQUESTS]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/median.h"
#include "serving/policies/make_policy.h"
#include "serving/random.h"

namespace {

using namespace braid::serving;

constexpr int64_t kNow = 1'000'000'000;
constexpr int kRounds = 400;

std::vector<RequestView> requests(size_t count) {
  Random random(1);
  std::vector<RequestView> all(count);
  for (size_t id = 0; id < count; ++id) {
    RequestView& request = all[id];
    request.id = id;
    request.state = static_cast<RequestState>(id % 3);
    request.arrival_us = kNow - static_cast<int64_t>(random.below(60'000'000));
    request.blocks = static_cast<uint32_t>(10 + random.below(60));
    request.context_tokens = 16 * request.blocks;
    request.output_tokens = request.expected_tokens = static_cast<uint32_t>(random.below(800));
    request.length_rank = random.uniform();
    if (request.state == RequestState::kWaiting) continue;
    request.last_token_us = kNow - static_cast<int64_t>(random.below(1'000'000));
    request.running_since_us = kNow - static_cast<int64_t>(random.below(20'000'000)) - 1;
    request.freed_blocks = request.load_blocks = request.blocks;
    request.growth_blocks = request.state == RequestState::kRunning && id % 16 == 0;
  }
  return all;
}

double median_us(const Policy& policy, const View& view) {
  std::vector<double> times;
  size_t named = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto begun = std::chrono::steady_clock::now();
    named += policy.decide(view).admit.size();
    const std::chrono::duration<double, std::micro> passed =
        std::chrono::steady_clock::now() - begun;
    times.push_back(passed.count());
  }
  if (named == ~size_t{0}) std::abort();  // so that nothing is left out
  return braid::median(std::move(times));
}

}  // namespace

int main(int argc, char** argv) {
  const size_t count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1000;
  const std::vector<RequestView> all = requests(count);
  View view;
  view.now_us = kNow;
  view.step_us = 40'000;
  view.total_blocks = 14'000;
  view.block_bytes = 4 << 20;
  view.block_tokens = 16;
  view.budget = {uint64_t{6} << 30, uint64_t{5} << 30};
  view.requests = all;
  std::printf("%zu requests, median of %d\n", count, kRounds);
  for (const PolicyName& name : policy_names()) {
    const auto policy = std::move(make_policy(name.name).value());
    std::printf("%-16s %8.1f us\n", name.name, median_us(*policy, view));
  }
}
