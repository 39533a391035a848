#include "serving/simulator/simulate.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "serving/cost/calibration.h"
#include "serving/policies/make_policy.h"

namespace braid::serving {
namespace {

// A tenth of the memory of these GPUs, as B_xfer is in the paper.
const PolicyParameters kSmall{.transfer_blocks = 100};

EngineConfig config_of(double kv_gigabytes, std::string_view link = "braid4") {
  EngineConfig config;
  config.model = find_model("Llama-3-8B").value();
  config.constants = h200_calibration().constants;
  config.gpu = find_gpu("H200").value();
  config.link = find_link(link).value();
  config.host = pcie_host();
  config.hbm_share = 1;
  config.activation_bytes = 0;
  config.gpu.hbm_bytes = static_cast<double>(config.model.weight_bytes()) + kv_gigabytes * 1e9;
  return config;
}

Workload load(double rate_rps, double seconds, uint64_t seed = 1) {
  return poisson_workload(chat_like(), {.rate_rps = rate_rps, .seconds = seconds}, seed);
}

RunResult run(const EngineConfig& config, std::string_view name, const Workload& workload) {
  const auto policy = std::move(make_policy(name, kSmall).value());
  auto results = simulate(config, *policy, {&workload});
  EXPECT_TRUE(results.ok()) << results.status().message();
  return results.value()[0];
}

class EveryPolicy : public ::testing::TestWithParam<std::string> {};

// 2 GB are 15,000 tokens: some 30 of these requests, when more than 100 are there.
TEST_P(EveryPolicy, ServesAllRequestsWithLittleMemory) {
  const Workload workload = load(12, 60);
  const RunResult result = run(config_of(2), GetParam(), workload);
  uint64_t tokens = 0, expected = 0;
  for (size_t id = 0; id < workload.requests.size(); ++id) {
    const RequestRecord& record = result.record.requests[id];
    tokens += record.tokens;
    expected += workload.requests[id].output_tokens;
    EXPECT_NE(record.end_us, kNever) << id;
    EXPECT_GE(record.first_token_us, record.arrival_us);
  }
  EXPECT_EQ(tokens, expected);
}

TEST_P(EveryPolicy, WithEnoughMemoryIsFcfs) {
  const Workload workload = load(5, 60);
  const RunResult result = run(config_of(40), GetParam(), workload);
  const RunResult fcfs = run(config_of(40), "fcfs_recompute", workload);
  EXPECT_EQ(result.metrics.rotations, 0);
  EXPECT_EQ(result.metrics.ttft_p99_s, fcfs.metrics.ttft_p99_s);
  EXPECT_EQ(result.metrics.tbt_p99_ms, fcfs.metrics.tbt_p99_ms);
  EXPECT_EQ(result.record.end_us, fcfs.record.end_us);
}

TEST_P(EveryPolicy, TwoRunsAreEqualBitForBit) {
  const RunResult first = run(config_of(2), GetParam(), load(12, 30));
  const RunResult second = run(config_of(2), GetParam(), load(12, 30));
  ASSERT_EQ(first.record.requests.size(), second.record.requests.size());
  for (size_t id = 0; id < first.record.requests.size(); ++id) {
    const RequestRecord &a = first.record.requests[id], &b = second.record.requests[id];
    ASSERT_EQ(a.end_us, b.end_us) << id;
    ASSERT_EQ(a.first_token_us, b.first_token_us) << id;
    ASSERT_EQ(a.longest_gap_us, b.longest_gap_us) << id;
  }
  EXPECT_EQ(first.record.loaded_bytes, second.record.loaded_bytes);
}

INSTANTIATE_TEST_SUITE_P(Each, EveryPolicy, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const PolicyName& name : policy_names())
                             names.emplace_back(name.name);
                           return names;
                         }()),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Simulator, ARequestLargerThanTheGpuIsRefused) {
  Workload workload = load(5, 10);
  workload.requests[3].prompt_tokens = 100'000;
  const auto policy = std::move(make_policy("braid").value());
  const auto result = simulate(config_of(2), *policy, {&workload});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("request 3 of 100000"), std::string::npos)
      << result.status().message();
}

TEST(Simulator, ARequestOfATraceIsNamedByItsLine) {
  const Trace trace =
      parse_trace("prompt_tokens,output_tokens\n100,10\n100000,10\n", "t.csv").value();
  const Lengths lengths("t.csv", "given", std::make_shared<Trace>(trace));
  for (const Workload& workload : {stretch_of_trace(trace, {.rate_rps = 1, .seconds = 10}, 1),
                                   poisson_workload(lengths, {.rate_rps = 5, .seconds = 10}, 1)}) {
    const auto policy = std::move(make_policy("braid").value());
    const auto result = simulate(config_of(2), *policy, {&workload});
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.status().message().find("t.csv:3: request"), std::string::npos)
        << result.status().message();
    EXPECT_NE(result.status().message().find("of 100000 + 10 tokens"), std::string::npos);
  }
}

TEST(Simulator, AnArrivalBeyondVirtualTimeIsRefused) {
  Workload workload = load(5, 10);
  workload.requests.back().arrival_us = int64_t{1} << 60;
  const auto policy = std::move(make_policy("braid").value());
  const auto result = simulate(config_of(2), *policy, {&workload});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("days"), std::string::npos) << result.status().message();
}

TEST(Simulator, AModelLargerThanTheGpuIsRefused) {
  EngineConfig config = config_of(2);
  config.gpu.hbm_bytes = 10e9;
  const auto policy = std::move(make_policy("braid").value());
  const Workload workload = load(5, 10);
  const auto result = simulate(config, *policy, {&workload});
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("Llama-3-8B does not fit"), std::string::npos);
}

TEST(Simulator, RotationKeepsWhatRecomputationLoses) {
  const Workload workload = load(12, 60);
  const RunResult rotated = run(config_of(2), "paper", workload);
  EXPECT_GT(rotated.metrics.rotations, 0.5);
  EXPECT_EQ(rotated.metrics.recomputes, 0);
  EXPECT_GT(rotated.record.loaded_bytes, 0u);
}

// Requests whose KV cache is on the host get their tokens there: none waits as long for one as
// where the same requests rest.
TEST(Simulator, OffloadedRequestsGoOn) {
  const Workload workload = load(12, 60);
  const RunResult offloaded = run(config_of(2), "neo-like", workload);
  const RunResult resting = run(config_of(2), "waiting_first", workload);
  EXPECT_GT(offloaded.metrics.rotations, 0.1);
  EXPECT_EQ(offloaded.metrics.recomputes, 0);
  EXPECT_LT(offloaded.metrics.longest_gap_p99_ms, resting.metrics.longest_gap_p99_ms / 2);
}

// The policy sees how far they are.
TEST(Simulator, AnOffloadedRequestIsSeenToGoOn) {
  class Watched final : public Policy {
   public:
    std::string_view name() const override { return inner_->name(); }
    Eviction eviction() const override { return inner_->eviction(); }
    Decision decide(const View& view) const override {
      std::map<RequestId, uint32_t> now;
      for (const RequestView& request : view.requests) {
        if (request.state != RequestState::kRotary) continue;
        now[request.id] = request.generated_tokens;
        const auto before = offloaded_.find(request.id);
        if (before != offloaded_.end() && before->second < request.generated_tokens) ++steps_seen;
      }
      offloaded_ = std::move(now);
      return inner_->decide(view);
    }
    mutable uint64_t steps_seen = 0;

   private:
    const std::unique_ptr<Policy> inner_ = std::move(make_policy("neo-like", kSmall).value());
    mutable std::map<RequestId, uint32_t> offloaded_;
  } policy;
  const Workload workload = load(12, 60);
  EXPECT_TRUE(simulate(config_of(2), policy, {&workload}).ok());
  EXPECT_GT(policy.steps_seen, 100u);
}

TEST(Simulator, NothingRotatesWhereTheHostHasNoMemory) {
  EngineConfig config = config_of(2);
  config.host_bytes = 0;
  EXPECT_EQ(run(config, "paper", load(12, 60)).metrics.rotations, 0);
}

TEST(Simulator, AFullHostFallsBackToRecomputation) {
  EngineConfig config = config_of(2);
  config.host_bytes = 0.2e9;
  const RunResult result = run(config, "braid", load(12, 30));
  EXPECT_GT(result.metrics.recomputes, 0);
  for (const RequestRecord& record : result.record.requests) EXPECT_NE(record.end_us, kNever);
}

// FCFS but for the first request, as the test says.
class ButForTheFirst : public Policy {
 public:
  std::string_view name() const override { return "but-for-the-first"; }
  Eviction eviction() const override { return Eviction::kRotate; }
  Decision decide(const View& view) const override {
    Decision decision;
    for (const RequestView& request : view.requests) {
      if (request.id == 0)
        see(request, decision);
      else if (request.state == RequestState::kWaiting)
        decision.admit.push_back(request.id);
    }
    return decision;
  }

 protected:
  virtual void see(const RequestView& first, Decision& decision) const = 0;
};

// It waits for its next token until the run ends, a minute after the last arrival.
TEST(Simulator, AGapThatNeverEndsIsALongOne) {
  class Starves final : public ButForTheFirst {
    void see(const RequestView& first, Decision& decision) const override {
      if (first.state == RequestState::kWaiting) decision.admit.push_back(first.id);
      if (first.state == RequestState::kRunning && first.generated_tokens == 10)
        decision.preempt.push_back(first.id);
    }
  };
  Workload workload;
  workload.requests = {{.prompt_tokens = 100, .output_tokens = 50},
                       {.prompt_tokens = 100, .output_tokens = 20}};
  const auto results = simulate(config_of(2), Starves(), {&workload}, {.warm_up_share = 0});
  ASSERT_TRUE(results.ok()) << results.status().message();
  const RunResult& result = results.value()[0];
  EXPECT_EQ(result.record.requests[0].tokens, 10u);
  EXPECT_LT(result.metrics.tbt_p50_ms, 100);
  EXPECT_GT(result.metrics.tbt_p99_ms, 59'000);
  EXPECT_GT(result.gap_quantiles_ms.back(), 59'000);
}

// An engine that has nothing to do asks its policy again a hundred times a second, however many
// arrivals have woken it, and gives up after a hundred seconds only.
TEST(Simulator, AnIdleEngineAsksAtOneRate) {
  class AdmitsNone final : public Policy {
   public:
    std::string_view name() const override { return "admits-none"; }
    Eviction eviction() const override { return Eviction::kRotate; }
    Decision decide(const View&) const override { return {}; }
  };
  Workload workload;
  for (int index = 0; index < 20; ++index)
    workload.requests.push_back(
        {.arrival_us = index * 1001, .prompt_tokens = 100, .output_tokens = 1});
  const auto minute = simulate(config_of(2), AdmitsNone(), {&workload});
  EXPECT_TRUE(minute.ok()) << minute.status().message();
  EXPECT_FALSE(simulate(config_of(2), AdmitsNone(), {&workload}, {.drain_s = 110}).ok());
}

// What is expected of a request that waits follows what others tell meanwhile.
TEST(Simulator, WhatIsExpectedOfARequestThatWaitsFollowsThePast) {
  class Watches final : public ButForTheFirst {
   public:
    mutable uint32_t at_first = 0, at_last = 0;

   private:
    void see(const RequestView& first, Decision&) const override {
      if (at_first == 0) at_first = first.expected_tokens;
      at_last = first.expected_tokens;
    }
  };
  Workload workload;
  for (int index = 0; index < 100; ++index)
    workload.requests.push_back(
        {.arrival_us = index * 200'000, .prompt_tokens = 100, .output_tokens = 40});
  const Watches policy;
  ASSERT_TRUE(simulate(config_of(2), policy, {&workload}).ok());
  EXPECT_GT(policy.at_first, 200u);  // a guess
  EXPECT_EQ(policy.at_last, 40u);
}

TEST(Simulator, SlowLinksStallStepsThatWait) {
  const Workload workload = load(12, 60);
  EngineConfig config = config_of(2, "c2c-naive");
  config.steps_wait_for_copies = true;
  EXPECT_GT(run(config, "paper", workload).metrics.stall_share, 0.1);
  config.link = find_link("c2c").value();
  EXPECT_LT(run(config, "paper", workload).metrics.stall_share, 0.1);
}

TEST(Simulator, SharedPrefixesAreComputedOnce) {
  Workload workload;
  workload.chunk_tokens = 512;
  for (int index = 0; index < 20; ++index) {
    Request request;
    request.arrival_us = index * 1'000'000;
    request.prompt_tokens = 4096 + 100;
    request.output_tokens = 20;
    request.chunks = {0, 1, 2, 3, 4, 5, 6, 7, static_cast<uint32_t>(100 + index)};
    workload.requests.push_back(request);
  }
  const RunResult shared = run(config_of(4), "braid", workload);
  for (Request& request : workload.requests) request.chunks.clear();
  const RunResult apart = run(config_of(4), "braid", workload);
  EXPECT_LT(shared.metrics.ttft_p50_s, apart.metrics.ttft_p50_s / 3);
}

// Four prompts of 4096 tokens in turn, and room for two of them: each comes back from the host.
TEST(Simulator, PrefixesComeBackFromTheHost) {
  Workload workload;
  workload.chunk_tokens = 512;
  for (uint32_t index = 0; index < 40; ++index) {
    Request request;
    request.arrival_us = index * 2'000'000;
    request.prompt_tokens = 4096 + 100;
    request.output_tokens = 20;
    for (uint32_t chunk = 0; chunk < 8; ++chunk) request.chunks.push_back(10 * (index % 4) + chunk);
    workload.requests.push_back(request);
  }
  const RunResult result = run(config_of(1.3), "braid", workload);
  EXPECT_GT(result.record.loaded_bytes, 0u);
  const double alone_us = static_cast<double>(result.record.requests[0].first_token_us);
  EXPECT_LT(result.metrics.ttft_p50_s * 1e6, alone_us / 3);
}

TEST(Simulator, GpusOfOneHostShareItsMemory) {
  const Workload first = load(14, 40, 1), second = load(14, 40, 2), third = load(14, 40, 3),
                 fourth = load(14, 40, 4);
  EngineConfig config = config_of(2);
  config.steps_wait_for_copies = true;
  const auto policy = std::move(make_policy("paper", {.transfer_blocks = 300}).value());
  const auto alone = simulate(config, *policy, {&first});
  const auto together = simulate(config, *policy, {&first, &second, &third, &fourth});
  ASSERT_TRUE(alone.ok() && together.ok());
  ASSERT_EQ(together.value().size(), 4u);
  EXPECT_GT(together.value()[0].metrics.stall_share, 1.5 * alone.value()[0].metrics.stall_share);
}

}  // namespace
}  // namespace braid::serving
