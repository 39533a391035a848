// The pure parts: max-min fair sharing, flows over time.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "simulation/fair_share.h"
#include "simulation/flows.h"
#include "simulation/simulation.h"
#include "simulation/slots.h"

namespace braid::simulation {
namespace {

std::vector<double> shares(const std::vector<double>& capacities,
                           const std::vector<ShareClass>& classes) {
  std::vector<double> rates(classes.size(), -1);
  FairShareRoom room;
  fair_share(capacities, classes, rates, room);
  return rates;
}

TEST(FairShare, OneFlowGetsItsNarrowestResource) {
  EXPECT_EQ(shares({55, 200}, {{{0, 1}, 0, 1}}), (std::vector<double>{55}));
}

TEST(FairShare, ACapBinds) {
  EXPECT_EQ(shares({55}, {{{0}, 10, 1}, {{0}, 0, 1}}), (std::vector<double>{10, 45}));
}

TEST(FairShare, NothingFlowingGetsNothing) {
  EXPECT_EQ(shares({55}, {{{0}, 0, 0}}), (std::vector<double>{0}));
}

TEST(FairShare, UnlimitedResourcesDoNotBind) {
  EXPECT_EQ(shares({0, 30}, {{{0, 1}, 0, 3}}), (std::vector<double>{10}));
}

TEST(FairShare, WeightsDivideAFullResource) {
  // Four blocks of one kernel, a quarter each, beside a copy engine.
  EXPECT_EQ(shares({56}, {{{0}, 0, 4, 0.25}, {{0}, 0, 1}}), (std::vector<double>{7, 28}));
  // What a capped flow leaves goes to the others by weight.
  EXPECT_EQ(shares({55}, {{{0}, 1, 1, 0.25}, {{0}, 0, 2, 0.5}, {{0}, 0, 1}}),
            (std::vector<double>{1, 13.5, 27}));
}

TEST(Slots, TheMostUrgentIsServedFirst) {
  Slots slots(1);
  std::string served;
  const auto take = [&](char name, int priority) {
    slots.take(
        1, [&served, name] { served += name; }, priority);
  };
  take('a', 0);
  take('b', 0);
  take('c', -5);
  take('d', -1);
  take('e', -5);
  for (int i = 0; i < 4; ++i) slots.give_back(1);
  EXPECT_EQ(served, "acedb");
}

// Bertsekas and Gallager's example: a long flow over all links and a short one on each.
TEST(FairShare, TheTextbookLine) {
  const auto rates = shares({1, 1, 2}, {{{0, 1, 2}, 0, 1}, {{0}, 0, 1}, {{1}, 0, 2}, {{2}, 0, 1}});
  EXPECT_DOUBLE_EQ(rates[0], 1.0 / 3);  // shares link 1 with two others
  EXPECT_DOUBLE_EQ(rates[1], 2.0 / 3);
  EXPECT_DOUBLE_EQ(rates[2], 1.0 / 3);
  EXPECT_DOUBLE_EQ(rates[3], 5.0 / 3);
}

// Eight PCIe links of 53, host memory of 300, and a socket link of 80 before four of them.
TEST(FairShare, TheServerShape) {
  std::vector<ShareClass> classes;
  for (int gpu = 0; gpu < 8; ++gpu) {
    ShareClass share_class{{gpu, 8}, 0, 1};
    if (gpu >= 4) share_class.resources.push_back(9);
    classes.push_back(share_class);
  }
  std::vector<double> capacities(8, 53);
  capacities.push_back(300);
  capacities.push_back(80);
  const auto rates = shares(capacities, classes);
  for (int gpu = 0; gpu < 4; ++gpu) EXPECT_DOUBLE_EQ(rates[gpu], 53);
  for (int gpu = 4; gpu < 8; ++gpu) EXPECT_DOUBLE_EQ(rates[gpu], 20);
}

// Max-min fairness: nothing is overloaded, and every flow has a bottleneck: its cap, or a full
// resource on which no flow is faster.
TEST(FairShare, RandomCasesAreMaxMinFair) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 5000; ++round) {
    const size_t resources = 1 + random() % 8;
    std::vector<double> capacities;
    for (size_t r = 0; r < resources; ++r)
      capacities.push_back(random() % 10 == 0 ? 0 : 1 + static_cast<double>(random() % 1000) / 7);
    std::vector<ShareClass> classes;
    for (size_t c = 0; c < 1 + random() % 10; ++c) {
      ShareClass made;
      for (size_t r = 0; r < resources; ++r)
        if (random() % 3 == 0) made.resources.push_back(static_cast<int>(r));
      made.cap = 1 + static_cast<double>(random() % 500) / 11;
      made.flows = static_cast<int>(random() % 5);
      classes.push_back(made);
    }
    const auto rates = shares(capacities, classes);
    std::vector<double> load(resources, 0);
    for (size_t c = 0; c < classes.size(); ++c)
      for (int r : classes[c].resources) load[r] += rates[c] * classes[c].flows;
    for (size_t r = 0; r < resources; ++r) {
      if (capacities[r] <= 0) continue;
      ASSERT_LE(load[r], capacities[r] * (1 + 1e-9)) << "round " << round;
    }
    for (size_t c = 0; c < classes.size(); ++c) {
      if (classes[c].flows == 0) continue;
      bool bottleneck = rates[c] >= classes[c].cap * (1 - 1e-9);
      for (int r : classes[c].resources) {
        if (capacities[r] <= 0 || load[r] < capacities[r] * (1 - 1e-9)) continue;
        bool fastest = true;
        for (size_t other = 0; other < classes.size(); ++other)
          if (classes[other].flows > 0 && rates[other] > rates[c] * (1 + 1e-9) &&
              std::count(classes[other].resources.begin(), classes[other].resources.end(), r) > 0)
            fastest = false;
        bottleneck = bottleneck || fastest;
      }
      ASSERT_TRUE(bottleneck) << "round " << round << " class " << c;
    }
  }
}

// Runs flows to their end; `now` is the time of what ends.
void run(Flows& flows, Time& now) {
  while (flows.next_completion() != kForever) {
    now = flows.next_completion();
    for (const auto& done : flows.advance(now)) done();
  }
}

TEST(Flows, RatesChangeWhenOthersComeAndGo) {
  Flows flows({10});  // 10 GB/s are 0.01 bytes a picosecond
  const int route = flows.add_class({0}, 0);
  std::vector<Time> ended(2, 0);
  Time now = 0;
  flows.start(0, route, 1000, [&] { ended[0] = now; });
  flows.start(0, route, 3000, [&] { ended[1] = now; });
  run(flows, now);
  EXPECT_EQ(ended[0], 200'000);  // at half the rate
  EXPECT_EQ(ended[1], 400'000);  // 1000 bytes at half the rate, 2000 alone
}

TEST(Flows, ACapacityChangesInTheMiddle) {
  Flows flows({10});
  const int route = flows.add_class({0}, 0);
  flows.start(0, route, 1000, [] {});
  EXPECT_EQ(flows.next_completion(), 100'000);
  flows.set_capacity(50'000, 0, 5);
  EXPECT_EQ(flows.next_completion(), 150'000);
}

TEST(Flows, TheLimitOfBothWaysCountsOnlyWhenBothAreUsed) {
  Flows flows({10, 10, 8});
  flows.limit_both_ways(0, 1, 2);
  const int up = flows.add_class({0, 2}, 0);
  const int down = flows.add_class({1, 2}, 0);
  flows.start(0, up, 1000, [] {});
  EXPECT_EQ(flows.next_completion(), 100'000);
  flows.start(50'000, down, 1000, [] {});
  EXPECT_EQ(flows.next_completion(), 50'000 + 125'000);  // 500 bytes left at 4 GB/s
}

TEST(Flows, EqualFlowsEndTogetherInTheOrderTheyStarted) {
  Flows flows({10, 10});
  const int one = flows.add_class({0}, 0);
  const int other = flows.add_class({1}, 0);
  std::vector<int> order;
  flows.start(0, other, 100, [&] { order.push_back(0); });
  flows.start(0, one, 100, [&] { order.push_back(1); });
  flows.start(0, other, 100, [&] { order.push_back(2); });
  Time now = 0;
  run(flows, now);
  EXPECT_EQ(order, (std::vector<int>{1, 0, 2}));
}

TEST(Events, EqualTimesRunInTheOrderAdded) {
  Simulation simulation({});
  std::vector<int> order;
  for (int i = 0; i < 100; ++i)
    simulation.at(i % 3, [&order, i] { order.push_back(i % 3 * 100 + i); });
  while (simulation.step(kForever)) {
  }
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(order.size(), 100u);
}

}  // namespace
}  // namespace braid::simulation
