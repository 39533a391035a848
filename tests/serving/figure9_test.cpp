// SuperInfer's own example, figure 9: four requests, a GPU that holds two of them; those that lag
// most come in, those that are furthest ahead go out, and so all four take turns. The text of the
// paper gives the setting; the lags here are ours.
#include <gtest/gtest.h>

#include "serving/policies/largest_lag_first.h"
#include "views.h"

namespace braid::serving {
namespace {

constexpr uint32_t kBlocks = 4;  // of each request

Ids ids(const std::vector<const RequestView*>& requests) {
  Ids all;
  for (const RequestView* request : requests) all.push_back(request->id);
  return all;
}

LagParameters plain() { return {.alpha = 1, .beta_tbt = 0, .beta_ttft = 0}; }

TEST(Figure9, TheTwoThatLagReplaceTheTwoThatAreAhead) {
  const std::vector<RequestView> requests = {
      running(1, kBlocks, 30'000), running(2, kBlocks, 50'000), waiting(3, kBlocks, 20'000),
      rotary(4, kBlocks, 40'000)};
  const LargestLagFirst chosen = largest_lag_first(view_of(requests, 0), 0, 2 * kBlocks, plain());
  EXPECT_EQ(ids(chosen.prioritized), (Ids{4, 3}));  // lags 40 and 20 ms
  EXPECT_EQ(ids(chosen.preempted), (Ids{2, 1}));    // -50 and -30 ms
}

TEST(Figure9, ABudgetOfOneRequestRotatesOne) {
  const std::vector<RequestView> requests = {
      running(1, kBlocks, 30'000), running(2, kBlocks, 50'000), waiting(3, kBlocks, 20'000),
      rotary(4, kBlocks, 40'000)};
  const LargestLagFirst chosen = largest_lag_first(view_of(requests, 0), 0, kBlocks, plain());
  EXPECT_EQ(ids(chosen.prioritized), (Ids{4}));
  EXPECT_EQ(ids(chosen.preempted), (Ids{2}));
}

// Played on: what came in runs, what went out lags, and each of the four runs half of the time.
TEST(Figure9, AllFourTakeTurns) {
  constexpr int64_t kStepUs = 10'000;
  std::vector<RequestView> requests = {running(1, kBlocks, kStepUs), running(2, kBlocks, kStepUs),
                                       rotary(3, kBlocks, 2 * kStepUs),
                                       rotary(4, kBlocks, 2 * kStepUs)};
  std::vector<int> steps(5);
  int64_t now_us = kNow;
  for (int step = 0; step < 100; ++step, now_us += kStepUs) {
    View view = view_of(requests, 0);
    view.now_us = now_us;
    const Decision decision =
        policy("paper", {.lag = plain(), .transfer_blocks = 2 * kBlocks})->decide(view);
    for (RequestView& request : requests) {
      for (const RequestId id : decision.preempt)
        if (id == request.id) request.state = RequestState::kRotary;
      for (const RequestId id : decision.admit)
        if (id == request.id) {
          request.state = RequestState::kRunning;
          request.running_since_us = now_us;
          request.freed_blocks = kBlocks;
        }
    }
    int running_now = 0;
    for (RequestView& request : requests)
      if (request.state == RequestState::kRunning) {
        request.last_token_us = now_us + kStepUs;
        ++steps[request.id];
        ++running_now;
      }
    ASSERT_EQ(running_now, 2) << "step " << step;
  }
  for (int id = 1; id <= 4; ++id) EXPECT_NEAR(steps[id], 50, 2) << "request " << id;
}

// Algorithm 1 line by line where it surprises.
TEST(Algorithm1, EnoughRoomFallsBackToTheOrderOfArrival) {
  const std::vector<RequestView> requests = {
      running(1, kBlocks, 30'000), rotary(4, kBlocks, 40'000), waiting(3, kBlocks, 90'000'000)};
  const LargestLagFirst chosen =
      largest_lag_first(view_of(requests, 2 * kBlocks), 2 * kBlocks, 2400, plain());
  EXPECT_TRUE(chosen.fell_back);
  EXPECT_EQ(ids(chosen.prioritized), (Ids{3, 4}));
  EXPECT_TRUE(chosen.preempted.empty());
}

TEST(Algorithm1, OneThatDoesNotFitIsPassedOver) {
  const std::vector<RequestView> requests = {
      running(1, kBlocks, 30'000), waiting(2, 3 * kBlocks, 50'000), waiting(3, kBlocks, 20'000)};
  const LargestLagFirst chosen = largest_lag_first(view_of(requests, 0), 0, kBlocks, plain());
  EXPECT_EQ(ids(chosen.prioritized), (Ids{3}));
  EXPECT_EQ(ids(chosen.preempted), (Ids{1}));
}

TEST(Algorithm1, OneThatBeganToRunNowIsPrioritizedAgain) {
  const std::vector<RequestView> requests = {running(1, kBlocks, 0), running(2, kBlocks, 40'000),
                                             waiting(3, kBlocks, 20'000)};
  const LargestLagFirst chosen = largest_lag_first(view_of(requests, 0), 0, 2 * kBlocks, plain());
  EXPECT_EQ(ids(chosen.prioritized), (Ids{3, 1}));
  EXPECT_EQ(ids(chosen.preempted), (Ids{2}));  // nobody else is ahead, and two were to go
}

TEST(VirtualLag, IsThePapersFormula) {
  const LagParameters parameters{.alpha = 3, .beta_tbt = 0.5, .beta_ttft = 0.5};
  // S_B is 100 ms and S_F 5 s.
  EXPECT_DOUBLE_EQ(virtual_lag_us(rotary(1, 1, 70'000), kNow, parameters), 3 * 20'000);
  EXPECT_DOUBLE_EQ(virtual_lag_us(rotary(1, 1, 40'000), kNow, parameters), 0);
  EXPECT_DOUBLE_EQ(virtual_lag_us(waiting(1, 1, 4'000'000), kNow, parameters), 1'500'000);
  EXPECT_DOUBLE_EQ(virtual_lag_us(waiting(1, 1, 2'000'000), kNow, parameters), 0);
  EXPECT_DOUBLE_EQ(virtual_lag_us(running(1, 1, 7'000), kNow, parameters), -7'000);
  const LagParameters eager{.alpha = 1, .beta_tbt = -2, .beta_ttft = 0};
  EXPECT_DOUBLE_EQ(virtual_lag_us(rotary(1, 1, 10'000), kNow, eager), 210'000);
}

TEST(VirtualLag, BeforeTheFirstTokenARotaryRequestLagsLikeAWaitingOne) {
  RequestView request = rotary(1, 1, 0);
  request.last_token_us = kNoToken;
  request.arrival_us = kNow - 4'000'000;
  EXPECT_DOUBLE_EQ(virtual_lag_us(request, kNow, LagParameters{}), 1'500'000);
}

TEST(VirtualLag, RefusesANegativeAlpha) {
  const auto made = make_policy("paper", {.lag = {.alpha = -1}});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("alpha"), std::string::npos);
  EXPECT_NE(made.status().message().find("0 or more"), std::string::npos);
}

// 0 times an infinite lag is no number, and requests would have no order.
TEST(VirtualLag, RefusesWhatWouldBeNoNumber) {
  const auto refusal = [](const LagParameters& lag) {
    return make_policy("paper", {.lag = lag}).status().message();
  };
  EXPECT_NE(refusal({.alpha = 0, .beta_tbt = -1e308}).find("beta_tbt"), std::string::npos);
  EXPECT_NE(refusal({.alpha = 0, .beta_ttft = 1e308}).find("beta_ttft"), std::string::npos);
  EXPECT_NE(refusal({.alpha = 1e308}).find("at most 1e9"), std::string::npos);
  EXPECT_EQ(refusal({.alpha = 1e9, .beta_tbt = -1e9, .beta_ttft = 1e9}), "");
}

}  // namespace
}  // namespace braid::serving
