// Random runs of the simulated network: engines that write, pause, crash and come back.
//
//   fabric_sim --seeds N [--first F]   runs N seeds on all CPUs; exit code 1 and the seed of a bug
//   fabric_sim --seed S                runs one, and says what happens
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "fabric/world.h"

namespace {

using braid::fabric::test::World;
using braid::fabric::test::WorldCounts;

struct Outcome {
  std::mutex mutex;
  WorldCounts counts;
  std::vector<std::pair<uint64_t, std::string>> bugs;
};

void add(WorldCounts& sum, const WorldCounts& counts) {
  sum.writes += counts.writes;
  sum.arrived += counts.arrived;
  sum.fenced += counts.fenced;
  sum.quarantined += counts.quarantined;
  sum.crashes += counts.crashes;
  sum.pauses += counts.pauses;
  sum.cuts += counts.cuts;
  sum.scatters += counts.scatters;
  sum.barriers += counts.barriers;
  sum.kills += counts.kills;
  sum.detours += counts.detours;
  sum.retirements += counts.retirements;
}

void run_seeds(std::atomic<uint64_t>& next, uint64_t end, Outcome& outcome) {
  constexpr size_t kBugsMax = 5;
  WorldCounts counts;
  for (uint64_t seed = next++; seed < end; seed = next++) {
    try {
      add(counts, World(seed).run());
    } catch (const std::exception& bug) {
      const std::lock_guard lock(outcome.mutex);
      outcome.bugs.emplace_back(seed, bug.what());
      if (outcome.bugs.size() >= kBugsMax) next = end;
    }
  }
  const std::lock_guard lock(outcome.mutex);
  add(outcome.counts, counts);
}

int run_all(uint64_t first, uint64_t count) {
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<uint64_t> next = first;
  Outcome outcome;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back([&] { run_seeds(next, first + count, outcome); });
  for (std::thread& thread : threads) thread.join();
  const WorldCounts& sum = outcome.counts;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf(
      "%zu seeds in %.1f s: %zu writes, %zu arrived, %zu fenced, %zu quarantined, %zu crashes, %zu "
      "pauses, %zu broken rails, %zu for good, %zu retired, %zu detours, %zu scatters, %zu "
      "barriers\n",
      size_t{count}, took.count(), size_t{sum.writes}, size_t{sum.arrived}, size_t{sum.fenced},
      size_t{sum.quarantined}, size_t{sum.crashes}, size_t{sum.pauses}, size_t{sum.cuts},
      size_t{sum.kills}, size_t{sum.retirements}, size_t{sum.detours}, size_t{sum.scatters},
      size_t{sum.barriers});
  for (const auto& [seed, what] : outcome.bugs)
    std::printf("failed: seed %zu: %s (replay: fabric_sim --seed %zu)\n", size_t{seed},
                what.c_str(), size_t{seed});
  return outcome.bugs.empty() ? 0 : 1;
}

int replay(uint64_t seed) {
  try {
    World(seed, true).run();
    std::printf("seed %zu is well\n", size_t{seed});
    return 0;
  } catch (const std::exception& bug) {
    std::printf("failed: seed %zu: %s\n", size_t{seed}, bug.what());
    return 1;
  }
}

}  // namespace

int main(int count, char** words) {
  uint64_t first = 1, seeds = 0;
  for (int i = 1; i + 1 < count; i += 2) {
    const uint64_t number = std::strtoull(words[i + 1], nullptr, 10);
    if (std::strcmp(words[i], "--seed") == 0) return replay(number);
    if (std::strcmp(words[i], "--seeds") == 0) seeds = number;
    if (std::strcmp(words[i], "--first") == 0) first = number;
  }
  if (seeds == 0) {
    std::fprintf(stderr, "usage: fabric_sim --seeds N [--first F] | --seed S\n");
    return 2;
  }
  return run_all(first, seeds);
}
