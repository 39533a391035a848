// What each policy does in the situations that it is made for.
#include <gtest/gtest.h>

#include "views.h"

namespace braid::serving {
namespace {

constexpr int64_t kLateUs = 9'000'000;   // beyond the objective of the first token
constexpr int64_t kEarlyUs = 1'000'000;  // within what is tolerated

Decision decide(std::string_view name, const std::vector<RequestView>& requests,
                uint32_t free_blocks) {
  return policy(name)->decide(view_of(requests, free_blocks));
}

TEST(Policies, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto made = make_policy("fifo");
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("fcfs_recompute"), std::string::npos);
}

TEST(FcfsRecompute, NobodyOvertakesWhoDoesNotFit) {
  const Decision decision =
      decide("fcfs_recompute", {waiting(1, 8, 3000), waiting(2, 2, 2000), running(3, 4, 1000)}, 4);
  EXPECT_TRUE(decision.admit.empty());
  EXPECT_TRUE(decision.preempt.empty());
}

TEST(FcfsRecompute, WhoCameLastMakesRoomForGrowth) {
  std::vector<RequestView> requests = {running(1, 8, 9000), running(2, 8, 5000),
                                       running(3, 8, 1000)};
  for (RequestView& request : requests) request.growth_blocks = 1;
  const Decision decision = decide("fcfs_recompute", requests, 1);
  EXPECT_EQ(decision.preempt, (Ids{3}));
}

// Whoever is preempted for growth is ahead of those that wait: these take none of the rest of the
// room in the same decision.
TEST(Growth, WhoMakesRoomForItIsNotOvertaken) {
  std::vector<RequestView> requests = {running(1, 8, 9'000'000), running(2, 8, 5'000'000),
                                       waiting(3, 2, 1000)};
  requests[0].growth_blocks = 1;
  for (RequestView& request : requests) request.output_tokens = request.expected_tokens = 20;
  requests[1].output_tokens = requests[1].expected_tokens = 21;  // so sjf_oracle takes it too
  for (const char* name : {"fcfs_recompute", "swapped_first", "sjf_oracle", "lightllm-like"}) {
    const Decision decision = decide(name, requests, 0);
    EXPECT_EQ(decision.preempt, (Ids{2})) << name;
    EXPECT_TRUE(decision.admit.empty()) << name;
  }
}

TEST(SwappedFirst, NobodyNewIsAdmittedWhileARotaryRequestWaits) {
  const Decision decision =
      decide("swapped_first", {rotary(1, 8, kLateUs), waiting(2, 2, kLateUs)}, 4);
  EXPECT_TRUE(decision.admit.empty());
}

TEST(WaitingFirst, WhoRanLongestMakesRoomForANewRequest) {
  const Decision decision =
      decide("waiting_first", {running(1, 8, 90'000), running(2, 8, 20'000), waiting(3, 8, 0)}, 0);
  EXPECT_EQ(decision.preempt, (Ids{1}));
  EXPECT_EQ(decision.admit, (Ids{3}));
}

TEST(SjfOracle, TheShortestIsAdmittedFirst) {
  std::vector<RequestView> requests = {waiting(1, 4, 3000), waiting(2, 4, 2000)};
  requests[0].output_tokens = 500;
  requests[1].output_tokens = 50;
  EXPECT_EQ(decide("sjf_oracle", requests, 5).admit, (Ids{2}));
}

TEST(Edf, WhoIsOverduePreemptsWhoIsNot) {
  const std::vector<RequestView> requests = {running(1, 8, 90'000), waiting(2, 8, kLateUs)};
  EXPECT_EQ(decide("edf", requests, 0).preempt, (Ids{1}));
  const std::vector<RequestView> in_time = {running(1, 8, 90'000), waiting(2, 8, kEarlyUs)};
  EXPECT_TRUE(decide("edf", in_time, 0).preempt.empty());
}

TEST(SloClasses, AHigherClassPreemptsALowerOneOnly) {
  std::vector<RequestView> requests = {running(1, 8, 90'000), running(2, 8, 50'000),
                                       waiting(3, 8, 0), waiting(4, 8, 0)};
  requests[1].priority = requests[3].priority = 1;
  const Decision decision = decide("slo_classes", requests, 0);
  EXPECT_EQ(decision.preempt, (Ids{2}));
  EXPECT_EQ(decision.admit, (Ids{3}));
}

TEST(LightllmLike, AdmitsNobodyWhoWouldNotFitInTheEnd) {
  std::vector<RequestView> requests = {running(1, 50, 90'000), waiting(2, 20, kLateUs)};
  requests[0].expected_tokens = 400;
  requests[1].expected_tokens = 400;
  // 70 blocks now, and 49 more before the first ends.
  EXPECT_TRUE(decide("lightllm-like", requests, 30).admit.empty());
  EXPECT_EQ(decide("lightllm-like", requests, 70).admit, (Ids{2}));
}

TEST(LtrLike, TheShorterOnePreempts) {
  std::vector<RequestView> requests = {running(1, 8, 90'000), waiting(2, 8, 0)};
  requests[0].length_rank = 300;
  requests[1].length_rank = 20;
  EXPECT_EQ(decide("ltr-like", requests, 0).preempt, (Ids{1}));
}

TEST(NeoLike, NobodyMakesRoomWhomTheCpuCouldNotAttendTo) {
  EXPECT_EQ(decide("neo-like", {running(1, 8, 90'000), waiting(2, 8, 0)}, 0).preempt, (Ids{1}));
  // 1,000 blocks of 4 MiB on the host already: what the CPU reads in a step is some 1,300.
  EXPECT_EQ(decide("neo-like", {running(1, 500, 90'000), waiting(2, 8, 0), rotary(3, 1000, 0)}, 0),
            Decision{});
}

TEST(Braid, WhoIsInTimePreemptsNobody) {
  const std::vector<RequestView> requests = {running(1, 8, 90'000), waiting(2, 8, kEarlyUs)};
  EXPECT_EQ(decide("braid", requests, 0), Decision{});
  EXPECT_EQ(policy("braid", {.late_only = false})->decide(view_of(requests, 0)).preempt, (Ids{1}));
}

// To hand seats from request to request gives nobody more of the GPU.
TEST(Braid, NobodyIsPreemptedForASeat) {
  const std::vector<RequestView> requests = {running(1, 8, 90'000), waiting(2, 8, kLateUs)};
  View view = view_of(requests, 100);
  view.max_running = 1;
  EXPECT_EQ(policy("braid")->decide(view), Decision{});
  view.free_blocks = 0;  // nor if blocks are missing too
  EXPECT_EQ(policy("braid")->decide(view), Decision{});
  view.max_running = 2;
  EXPECT_EQ(policy("braid")->decide(view).preempt, (Ids{1}));
}

TEST(Braid, WhoWillHaveMissedBeforeTheStepEndsIsLate) {
  std::vector<RequestView> requests = {running(1, 8, 90'000), waiting(2, 8, 4'980'000)};
  const PolicyParameters tolerant{.lag = {.alpha = 1, .beta_tbt = 0, .beta_ttft = 2}};
  EXPECT_EQ(policy("braid", tolerant)->decide(view_of(requests, 0)).admit, (Ids{2}));
  requests[1].arrival_us += 100'000;
  EXPECT_TRUE(policy("braid", tolerant)->decide(view_of(requests, 0)).admit.empty());
}

TEST(Braid, NobodyIsPreemptedForWhoIsNotAdmitted) {
  const std::vector<RequestView> requests = {running(1, 8, 90'000), running(2, 8, 50'000),
                                             waiting(3, 20, kLateUs)};
  EXPECT_EQ(decide("braid", requests, 0), Decision{});
  // The paper's algorithm takes both, since 20 blocks are within its budget.
  EXPECT_EQ(decide("paper", requests, 0).preempt, (Ids{1, 2}));
}

TEST(Braid, NobodyIsPreemptedWhoWouldThenLagMore) {
  std::vector<RequestView> requests = {running(1, 8, 90'000), running(2, 8, 50'000),
                                       waiting(3, 8, kLateUs)};
  requests[0].last_token_us = kNoToken;  // it came before 3, and its prompt is being computed
  requests[0].arrival_us = kNow - kLateUs - 1'000'000;
  EXPECT_EQ(decide("braid", requests, 0).preempt, (Ids{2}));
  EXPECT_EQ(decide("paper", requests, 0).preempt, (Ids{1}));
}

TEST(Braid, NobodyIsPreemptedWhomTheHostHasNoRoomFor) {
  std::vector<RequestView> requests = {running(1, 8, 90'000), waiting(2, 8, kLateUs)};
  requests[0].save_blocks = 5;
  View view = view_of(requests, 0);
  view.host_free_blocks = 4;
  EXPECT_EQ(policy("braid")->decide(view), Decision{});
  view.host_free_blocks = 5;
  EXPECT_EQ(policy("braid")->decide(view).preempt, (Ids{1}));
}

TEST(Braid, RunningRequestsGrowBeforeOthersAreAdmitted) {
  std::vector<RequestView> requests = {running(1, 8, 90'000), waiting(2, 8, kEarlyUs)};
  requests[0].growth_blocks = 1;
  EXPECT_EQ(decide("braid", requests, 8), Decision{});
  EXPECT_EQ(decide("braid", requests, 9).admit, (Ids{2}));
}

TEST(Braid, LoadsStayWithinTheBudget) {
  const std::vector<RequestView> requests = {rotary(1, 8, 900'000), rotary(2, 8, 800'000),
                                             rotary(3, 8, 700'000)};
  View view = view_of(requests, 24);
  view.budget.load_bytes = 17 * view.block_bytes;
  const Decision decision = policy("braid")->decide(view);
  EXPECT_EQ(decision.admit, (Ids{1, 2}));
  EXPECT_EQ(decision.load_bytes, 16 * view.block_bytes);
}

// While others load, a large request has to wait for its turn; small ones do not take its room.
TEST(Braid, NobodyOvertakesALateRequestThatFindsNoRoom) {
  std::vector<RequestView> requests = {running(1, 24, 900'000), waiting(2, 32, kLateUs),
                                       waiting(3, 8, kLateUs - 1), rotary(4, 8, 10'000)};
  requests[3].state = RequestState::kLoading;
  View view = view_of(requests, 8);
  view.budget = {4 * view.block_bytes, 4 * view.block_bytes};
  EXPECT_EQ(policy("braid")->decide(view), Decision{});
  requests[3].state = RequestState::kRunning;
  requests[3].running_since_us = kNow;
  EXPECT_EQ(policy("braid")->decide(view).admit, (Ids{2}));
}

TEST(Braid, OneRequestLargerThanABudgetGoesAlone) {
  std::vector<RequestView> requests = {rotary(1, 8, 900'000), rotary(2, 8, 800'000)};
  View view = view_of(requests, 24);
  view.budget.load_bytes = 3 * view.block_bytes;
  EXPECT_EQ(policy("braid")->decide(view).admit, (Ids{1}));
  requests[0].state = RequestState::kLoading;
  EXPECT_TRUE(policy("braid")->decide(view).admit.empty());
}

}  // namespace
}  // namespace braid::serving
