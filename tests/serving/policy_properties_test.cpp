// What holds for any view. Random views; a failure prints the seed that makes it again.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "views.h"

namespace braid::serving {
namespace {

constexpr int kViews = 2000;

struct Random {
  std::mt19937_64 engine;
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(engine() % static_cast<uint64_t>(limit));
  }
};

struct Scene {
  std::vector<RequestView> requests;
  View view;
};

RequestView random_request(Random& random, RequestId id) {
  const auto blocks = static_cast<uint32_t>(1 + random.below(60));
  RequestView request;
  switch (random.below(4)) {
    case 0: request = waiting(id, blocks, random.below(8) * 1'000'000); break;
    case 1: request = rotary(id, blocks, random.below(8) * 50'000); break;
    case 2: request = running(id, blocks, random.below(8) * 30'000); break;
    default:
      request = rotary(id, blocks, random.below(8) * 50'000);
      request.state = RequestState::kLoading;
  }
  if (request.state == RequestState::kRunning) {
    request.growth_blocks = static_cast<uint32_t>(random.below(2));
    request.freed_blocks = blocks - static_cast<uint32_t>(random.below(blocks));
    request.save_blocks = static_cast<uint32_t>(random.below(request.freed_blocks + 1));
  }
  request.priority = static_cast<uint8_t>(random.below(2));
  request.output_tokens = static_cast<uint32_t>(10 + random.below(5) * 100);
  request.length_rank = static_cast<double>(random.below(5));
  return request;
}

Scene random_scene(uint64_t seed) {
  Random random{std::mt19937_64(seed)};
  Scene scene;
  const int64_t count = random.below(30);
  for (int64_t id = 0; id < count; ++id)
    scene.requests.push_back(random_request(random, static_cast<RequestId>(id)));
  scene.view = view_of(scene.requests, static_cast<uint32_t>(random.below(200)));
  scene.view.max_running = static_cast<uint32_t>(5 + random.below(40));
  scene.view.budget.load_bytes = static_cast<uint64_t>(random.below(200)) * scene.view.block_bytes;
  scene.view.budget.save_bytes = static_cast<uint64_t>(random.below(200)) * scene.view.block_bytes;
  return scene;
}

class AllPolicies : public ::testing::TestWithParam<std::string> {
 protected:
  template <typename Check>
  void with_random_scenes(const Check& check) {
    for (uint64_t seed = 1; seed <= kViews && !HasFailure(); ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      Scene scene = random_scene(seed);
      scene.view.requests = scene.requests;
      check(scene);
    }
  }
  std::unique_ptr<Policy> policy_ = policy(GetParam());
};

TEST_P(AllPolicies, TheOrderOfTheViewChangesNothing) {
  with_random_scenes([&](Scene& scene) {
    const Decision decision = policy_->decide(scene.view);
    std::shuffle(scene.requests.begin(), scene.requests.end(), std::mt19937_64(7));
    EXPECT_EQ(policy_->decide(scene.view), decision);
  });
}

TEST_P(AllPolicies, EachRequestIsNamedOnceAndInAStateThatAllowsIt) {
  with_random_scenes([&](Scene& scene) {
    const Decision decision = policy_->decide(scene.view);
    std::map<RequestId, RequestState> states;
    for (const RequestView& request : scene.requests) states[request.id] = request.state;
    std::set<RequestId> named;
    for (const RequestId id : decision.preempt) {
      EXPECT_EQ(states.at(id), RequestState::kRunning) << id;
      EXPECT_TRUE(named.insert(id).second) << id;
    }
    for (const RequestId id : decision.admit) {
      EXPECT_TRUE(states.at(id) == RequestState::kWaiting || states.at(id) == RequestState::kRotary)
          << id;
      EXPECT_TRUE(named.insert(id).second) << id;
    }
  });
}

TEST_P(AllPolicies, WhatIsAdmittedFitsBesideTheGrowthOfTheRunning) {
  with_random_scenes([&](Scene& scene) {
    const Decision decision = policy_->decide(scene.view);
    const std::set<RequestId> out(decision.preempt.begin(), decision.preempt.end());
    const std::set<RequestId> in(decision.admit.begin(), decision.admit.end());
    int64_t left = scene.view.free_blocks;
    uint64_t load_bytes = 0, save_bytes = 0;
    int64_t on_gpu = 0;
    for (const RequestView& request : scene.requests) {
      const bool runs = request.state == RequestState::kRunning;
      if (out.count(request.id)) {
        left += request.freed_blocks;
        save_bytes += request.save_blocks * scene.view.block_bytes;
      } else if (runs) {
        left -= request.growth_blocks;
      }
      if (in.count(request.id)) {
        left -= request.blocks;
        load_bytes += request.load_blocks * scene.view.block_bytes;
      }
      on_gpu += (runs && !out.count(request.id)) || in.count(request.id) ||
                request.state == RequestState::kLoading;
    }
    if (!in.empty()) {
      EXPECT_GE(left, 0);
      EXPECT_LE(on_gpu, scene.view.max_running);
    }
    EXPECT_EQ(decision.load_bytes, load_bytes);
    EXPECT_EQ(decision.save_bytes, save_bytes);
  });
}

TEST_P(AllPolicies, WithEnoughMemoryAllAreAdmittedAsByFcfs) {
  with_random_scenes([&](Scene& scene) {
    for (RequestView& request : scene.requests)
      if (request.state == RequestState::kRotary) request.state = RequestState::kWaiting;
    scene.view.free_blocks = scene.view.total_blocks = 100'000;
    scene.view.max_running = 1000;
    scene.view.budget = {uint64_t{1} << 40, uint64_t{1} << 40};
    Decision decision = policy_->decide(scene.view);
    Decision fcfs = policy("fcfs_recompute")->decide(scene.view);
    if (GetParam() != "paper" && GetParam() != "braid") {
      std::sort(decision.admit.begin(), decision.admit.end());
      std::sort(fcfs.admit.begin(), fcfs.admit.end());
    }
    EXPECT_EQ(decision, fcfs);
  });
}

INSTANTIATE_TEST_SUITE_P(Each, AllPolicies, ::testing::ValuesIn([] {
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

const RequestView& find(const Scene& scene, RequestId id) {
  return *std::find_if(scene.requests.begin(), scene.requests.end(),
                       [&](const RequestView& request) { return request.id == id; });
}

TEST(BraidProperties, BudgetsAreKeptButForTheFirst) {
  for (uint64_t seed = 1; seed <= kViews && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scene scene = random_scene(seed);
    scene.view.requests = scene.requests;
    const Decision decision = policy("braid")->decide(scene.view);
    if (decision.admit.size() < 2) continue;
    // With two or more admitted, all but the first stay within the budget together.
    const uint64_t first = find(scene, decision.admit[0]).load_blocks * scene.view.block_bytes;
    EXPECT_LE(decision.load_bytes, std::max(scene.view.budget.load_bytes, first));
  }
}

TEST(BraidProperties, WhatIsPreemptedExceedsTheNeedByLessThanTheLastVictim) {
  for (uint64_t seed = 1; seed <= kViews && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Scene scene = random_scene(seed);
    scene.view.requests = scene.requests;
    scene.view.max_running = 1000;  // otherwise some go for their place, not for their blocks
    const Decision decision = policy("braid")->decide(scene.view);
    if (decision.preempt.empty()) continue;
    const std::set<RequestId> out(decision.preempt.begin(), decision.preempt.end());
    int64_t left = scene.view.free_blocks;
    for (const RequestView& request : scene.requests)
      if (request.state == RequestState::kRunning)
        left += out.count(request.id) ? static_cast<int64_t>(request.freed_blocks)
                                      : -static_cast<int64_t>(request.growth_blocks);
    for (const RequestId id : decision.admit) left -= find(scene, id).blocks;
    const RequestView& last = find(scene, decision.preempt.back());
    EXPECT_LT(left, static_cast<int64_t>(last.freed_blocks + last.growth_blocks));
  }
}

// Small requests keep coming, and one that needs the whole GPU is among them.
TEST(BraidProperties, ALargeRequestDoesNotStarve) {
  constexpr uint32_t kTotal = 32;
  constexpr int64_t kStepUs = 30'000;
  std::vector<RequestView> requests = {waiting(0, kTotal, 0)};
  RequestId next = 1;
  int64_t now_us = kNow;
  for (int step = 0; step < 1000; ++step, now_us += kStepUs) {
    for (int count = 0; count < 2; ++count) {
      requests.push_back(waiting(next++, 8, 0));
      requests.back().arrival_us = now_us;
    }
    uint32_t used = 0;
    for (const RequestView& request : requests)
      if (request.state == RequestState::kRunning) used += request.blocks;
    View view = view_of(requests, kTotal - used);
    view.now_us = now_us;
    view.budget = {4 * view.block_bytes, 4 * view.block_bytes};
    const Decision decision = policy("braid")->decide(view);
    for (RequestView& request : requests) {
      if (std::count(decision.preempt.begin(), decision.preempt.end(), request.id))
        request.state = RequestState::kRotary;
      if (std::count(decision.admit.begin(), decision.admit.end(), request.id)) {
        if (request.id == 0) return;  // it runs
        request.state = RequestState::kRunning;
        request.running_since_us = now_us;
        request.freed_blocks = request.blocks;
      }
      if (request.state == RequestState::kRunning) request.last_token_us = now_us + kStepUs;
    }
    // Small ones end after 20 steps.
    std::erase_if(requests, [&](const RequestView& request) {
      return request.state == RequestState::kRunning &&
             now_us - request.running_since_us > 20 * kStepUs;
    });
  }
  FAIL() << "after 1000 steps it has not run";
}

// Small requests come back all the time, and one has more on the host than the links carry in a
// step. Copies take two steps, so that somebody always loads.
TEST(BraidProperties, ALargeLoadDoesNotStarve) {
  constexpr int64_t kStepUs = 30'000;
  std::vector<RequestView> requests = {rotary(0, 8, 0)};
  RequestId next = 1;
  int64_t now_us = kNow;
  for (int step = 0; step < 100; ++step, now_us += kStepUs) {
    requests.push_back(rotary(next++, 2, 0));
    requests.back().last_token_us = now_us - 10'000;
    View view = view_of(requests, 100);
    view.now_us = now_us;
    view.budget = {4 * view.block_bytes, 4 * view.block_bytes};
    for (const RequestId id : policy("braid")->decide(view).admit) {
      if (id == 0) return;
      for (RequestView& request : requests)
        if (request.id == id) {
          request.state = RequestState::kLoading;
          request.running_since_us = now_us + 2 * kStepUs;
        }
    }
    std::erase_if(requests, [&](const RequestView& request) {
      return request.state == RequestState::kLoading && now_us >= request.running_since_us;
    });
  }
  FAIL() << "after 100 steps nobody loads it";
}

}  // namespace
}  // namespace braid::serving
