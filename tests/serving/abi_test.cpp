// libbraid_serving.so as programs use it.
#include "braid/serving_abi.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace {

braid_serving_request request(uint64_t id, int state, uint32_t blocks) {
  braid_serving_request all{};
  all.id = id;
  all.state = state;
  all.blocks = blocks;
  all.ttft_objective_us = 5'000'000;
  all.tbt_objective_us = 100'000;
  all.last_token_us = BRAID_SERVING_NO_TOKEN;
  return all;
}

class ServingAbi : public ::testing::Test {
 protected:
  void TearDown() override { braid_serving_close(policy_); }
  void open(const char* name) {
    ASSERT_EQ(braid_serving_open(name, nullptr, &policy_), BRAID_OK) << braid_serving_last_error();
  }
  braid_status decide(uint32_t free_blocks) {
    braid_serving_view view{};
    view.struct_bytes = sizeof(view);
    view.now_us = 10'000'000;
    view.step_us = 30'000;
    view.total_blocks = 100;
    view.free_blocks = free_blocks;
    view.host_free_blocks = view.max_running = 1000;
    view.block_bytes = 4 << 20;
    view.block_tokens = block_tokens_;
    view.load_bytes = view.save_bytes = 1 << 30;
    view.requests = requests_.data();
    view.request_count = requests_.size();
    preempt_.assign(requests_.size(), 0);
    admit_.assign(requests_.size(), 0);
    return braid_serving_decide(policy_, &view, preempt_.data(), admit_.data(), &decision_);
  }

  braid_serving_policy* policy_ = nullptr;
  std::vector<braid_serving_request> requests_;
  std::vector<uint64_t> preempt_, admit_;
  braid_serving_decision decision_{};
  uint32_t block_tokens_ = 16;
};

TEST_F(ServingAbi, ALateRequestReplacesOneThatRuns) {
  open("braid");
  EXPECT_EQ(braid_serving_keeps(policy_), 1);
  requests_ = {request(7, BRAID_SERVING_RUNNING, 8), request(9, BRAID_SERVING_WAITING, 8)};
  requests_[0].freed_blocks = 8;
  requests_[0].save_blocks = 1;
  requests_[0].last_token_us = 9'990'000;
  ASSERT_EQ(decide(0), BRAID_OK) << braid_serving_last_error();
  ASSERT_EQ(decision_.preempt_count, 1u);
  EXPECT_EQ(preempt_[0], 7u);
  ASSERT_EQ(decision_.admit_count, 1u);
  EXPECT_EQ(admit_[0], 9u);
  EXPECT_EQ(decision_.save_bytes, 4u << 20);
  EXPECT_EQ(decision_.load_bytes, 0u);
}

TEST_F(ServingAbi, AnEmptyViewHasAnEmptyAnswer) {
  open("fcfs_recompute");
  EXPECT_EQ(braid_serving_keeps(policy_), 0);
  ASSERT_EQ(decide(10), BRAID_OK) << braid_serving_last_error();
  EXPECT_EQ(decision_.preempt_count + decision_.admit_count, 0u);
}

// 1,600 tokens, and 400 to come: more than 100 blocks of 16 hold.
TEST_F(ServingAbi, WhatWillFitDependsOnTheTokensOfABlock) {
  open("lightllm-like");
  requests_ = {request(7, BRAID_SERVING_WAITING, 50)};
  requests_[0].context_tokens = 1600;
  requests_[0].expected_tokens = 400;
  ASSERT_EQ(decide(100), BRAID_OK) << braid_serving_last_error();
  EXPECT_EQ(decision_.admit_count, 0u);
  block_tokens_ = 32;
  ASSERT_EQ(decide(100), BRAID_OK) << braid_serving_last_error();
  EXPECT_EQ(decision_.admit_count, 1u);
  block_tokens_ = 0;
  EXPECT_EQ(decide(100), BRAID_ERROR_ARGUMENT);
  EXPECT_STREQ(braid_serving_last_error(), "braid_serving_view: block_tokens is 0");
}

// It would never fit: policies would make room for it in vain, step after step.
TEST_F(ServingAbi, ARequestLargerThanTheGpuIsNamed) {
  for (const char* name : {"braid", "paper", "fcfs_recompute"}) {
    open(name);
    requests_ = {request(7, BRAID_SERVING_RUNNING, 8), request(9, BRAID_SERVING_WAITING, 101)};
    EXPECT_EQ(decide(92), BRAID_ERROR_ARGUMENT);
    EXPECT_STREQ(braid_serving_last_error(),
                 "braid_serving_request 9: it takes 101 blocks, and the GPU has 100. Refuse it, or "
                 "cut it short");
    requests_ = {request(11, BRAID_SERVING_RUNNING, 100)};
    EXPECT_EQ(decide(0), BRAID_OK) << braid_serving_last_error();
    requests_[0].growth_blocks = UINT32_MAX;
    EXPECT_EQ(decide(0), BRAID_ERROR_ARGUMENT);
    EXPECT_NE(std::string(braid_serving_last_error()).find("request 11"), std::string::npos);
    requests_ = {request(12, BRAID_SERVING_WAITING, 100)};
    EXPECT_EQ(decide(100), BRAID_OK) << braid_serving_last_error();
    EXPECT_EQ(decision_.admit_count, 1u);
    braid_serving_close(policy_);
    policy_ = nullptr;
  }
}

TEST_F(ServingAbi, EveryNameOpens) {
  size_t count = 0;
  for (; braid_serving_policy_name(count) != nullptr; ++count) {
    braid_serving_policy* one = nullptr;
    EXPECT_EQ(braid_serving_open(braid_serving_policy_name(count), nullptr, &one), BRAID_OK);
    braid_serving_close(one);
  }
  EXPECT_EQ(count, 11u);
}

TEST_F(ServingAbi, WrongArgumentsAreNamed) {
  const auto says = [](const char* words) {
    return std::string(braid_serving_last_error()).find(words) != std::string::npos;
  };
  braid_serving_policy* none = nullptr;
  EXPECT_EQ(braid_serving_open("fifo", nullptr, &none), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("fifo") && says("waiting_first")) << braid_serving_last_error();
  braid_serving_parameters parameters;
  braid_serving_default_parameters(&parameters);
  EXPECT_EQ(parameters.transfer_blocks, 2400u);
  parameters.alpha = -1;
  EXPECT_EQ(braid_serving_open("paper", &parameters, &none), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("alpha")) << braid_serving_last_error();
  parameters.struct_bytes = 8;
  EXPECT_EQ(braid_serving_open("paper", &parameters, &none), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("struct_bytes")) << braid_serving_last_error();
  EXPECT_EQ(none, nullptr);

  open("paper");
  braid_serving_policy* stale = policy_;
  EXPECT_EQ(braid_serving_open("fifo", nullptr, &stale), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(stale, nullptr);
  requests_ = {request(7, 12, 8)};
  EXPECT_EQ(decide(10), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("request 7") && says("12")) << braid_serving_last_error();
  requests_ = {request(8, BRAID_SERVING_WAITING, 8)};
  requests_[0].ttft_objective_us = INT64_MAX;  // its sum with the arrival has no meaning
  EXPECT_EQ(decide(10), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("request 8") && says("time")) << braid_serving_last_error();
  requests_[0].ttft_objective_us = BRAID_SERVING_TIME_MAX_US;
  EXPECT_EQ(decide(10), BRAID_OK) << braid_serving_last_error();
  requests_[0].length_rank = std::nan("");
  EXPECT_EQ(decide(10), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("length_rank")) << braid_serving_last_error();
  EXPECT_EQ(braid_serving_decide(nullptr, nullptr, nullptr, nullptr, nullptr),
            BRAID_ERROR_ARGUMENT);
  braid_serving_default_parameters(nullptr);
}

}  // namespace
