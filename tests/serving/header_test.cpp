// libbraid_serving.so as C++ programs use it: serving.h over serving_abi.h.
#include <braid/serving.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

using Policy = braid::SchedulingPolicy;

// One that runs has the GPU's blocks; a waiting one is late.
Policy::View contended() {
  Policy::View view;
  view.now_us = 10'000'000;
  view.step_us = 30'000;
  view.total_blocks = 8;
  view.host_free_blocks = view.max_running = 1000;
  view.block_bytes = 4 << 20;
  view.block_tokens = 16;
  view.load_bytes = view.save_bytes = 1 << 30;
  Policy::Request runs(7, Policy::State::kRunning), waits(9, Policy::State::kWaiting);
  for (Policy::Request* request : {&runs, &waits}) {
    request->blocks = 8;
    request->ttft_objective_us = 5'000'000;
    request->tbt_objective_us = 100'000;
  }
  runs.last_token_us = 9'990'000;
  runs.freed_blocks = 8;
  runs.save_blocks = 1;
  view.requests = {runs, waits};
  return view;
}

TEST(SchedulingPolicy, DecidesAsTheCInterfaceDoes) {
  const auto opened = Policy::open("braid");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_TRUE(opened.value().keeps());
  const auto decided = opened.value().decide(contended());
  ASSERT_TRUE(decided.ok()) << decided.status().message();
  EXPECT_EQ(decided.value().preempt, std::vector<uint64_t>{7});
  EXPECT_EQ(decided.value().admit, std::vector<uint64_t>{9});
  EXPECT_EQ(decided.value().save_bytes, 4u << 20);
  EXPECT_EQ(decided.value().load_bytes, 0u);
}

TEST(SchedulingPolicy, AnEmptyViewHasAnEmptyAnswer) {
  Policy::View view = contended();
  view.requests.clear();
  const auto decided = Policy::open("fcfs_recompute").value().decide(view);
  ASSERT_TRUE(decided.ok()) << decided.status().message();
  EXPECT_TRUE(decided.value().preempt.empty());
  EXPECT_TRUE(decided.value().admit.empty());
}

TEST(SchedulingPolicy, EveryNameOpens) {
  const std::vector<std::string> names = Policy::names();
  EXPECT_NE(std::find(names.begin(), names.end(), "paper"), names.end());
  for (const std::string& name : names) EXPECT_TRUE(Policy::open(name).ok()) << name;
}

TEST(SchedulingPolicy, MistakesAreNamed) {
  EXPECT_NE(Policy::open("fifo").status().message().find("waiting_first"), std::string::npos);
  Policy::Parameters parameters = Policy::default_parameters();
  parameters.alpha = -1;
  EXPECT_NE(Policy::open("paper", parameters).status().message().find("alpha"), std::string::npos);
  Policy::View view = contended();
  view.block_bytes = 0;
  const auto decided = Policy::open("paper").value().decide(view);
  ASSERT_FALSE(decided.ok());
  EXPECT_NE(decided.status().message().find("block_bytes"), std::string::npos);
}

}  // namespace
