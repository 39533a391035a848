// Random runs of the simulated network: engines that write, pause, crash and come back.
//
//   fabric_sim --seeds N [--first F] [--bugs B]   runs N seeds on all CPUs, until B of them have
//                                                 shown a bug (5); exit code 1 and their seeds
//   fabric_sim --seed S                           runs one, and says what happens
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "fabric/world.h"

namespace {

using braid::fabric::test::World;
using braid::fabric::test::WorldCounts;

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

/// What the processes of a run share. Processes and not threads: what one of them counts and
/// allocates needs no atomic instruction, and a crash is a bug of a seed like any other.
struct Run {
  static constexpr size_t kWorkersMax = 256;
  struct Worker {
    uint64_t seed = 0;  // that it is at
    WorldCounts counts;
  };

  std::atomic<uint64_t> next;
  std::atomic<int64_t> bugs_left;
  Worker workers[kWorkersMax];
};

void tell(uint64_t seed, const std::string& what) {
  std::printf("failed: seed %zu: %s (replay: fabric_sim --seed %zu)\n", size_t{seed}, what.c_str(),
              size_t{seed});
  std::fflush(stdout);
}

void run_seeds(Run& run, uint64_t end, Run::Worker& worker) {
  while (run.bugs_left > 0 && (worker.seed = run.next++) < end) {
    try {
      add(worker.counts, World(worker.seed).run());
    } catch (const std::exception& bug) {
      tell(worker.seed, bug.what());
      --run.bugs_left;
    }
  }
}

int run_all(uint64_t first, uint64_t count, uint64_t bugs_max) {
  const auto begin = std::chrono::steady_clock::now();
  void* shared =
      mmap(nullptr, sizeof(Run), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::bad_alloc();
  Run& run = *new (shared) Run{first, static_cast<int64_t>(bugs_max), {}};
  const size_t workers =
      std::clamp<size_t>(std::thread::hardware_concurrency(), 1, Run::kWorkersMax);
  std::vector<pid_t> processes;
  for (size_t i = 0; i < workers; ++i) {
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      run_seeds(run, first + count, run.workers[i]);
      std::_Exit(0);
    }
    processes.push_back(process);
  }
  WorldCounts sum;
  bool has_crashed = false;
  for (size_t i = 0; i < workers; ++i) {
    int end = 0;
    waitpid(processes[i], &end, 0);
    if (end != 0) tell(run.workers[i].seed, "ends on signal " + std::to_string(WTERMSIG(end)));
    has_crashed = has_crashed || end != 0;
    add(sum, run.workers[i].counts);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf(
      "%zu seeds in %.1f s: %zu writes, %zu arrived, %zu fenced, %zu quarantined, %zu crashes, %zu "
      "pauses, %zu broken rails, %zu for good, %zu retired, %zu detours, %zu scatters, %zu "
      "barriers\n",
      size_t{count}, took.count(), size_t{sum.writes}, size_t{sum.arrived}, size_t{sum.fenced},
      size_t{sum.quarantined}, size_t{sum.crashes}, size_t{sum.pauses}, size_t{sum.cuts},
      size_t{sum.kills}, size_t{sum.retirements}, size_t{sum.detours}, size_t{sum.scatters},
      size_t{sum.barriers});
  return has_crashed || run.bugs_left < static_cast<int64_t>(bugs_max) ? 1 : 0;
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
  // Each run needs again what the one before it has freed.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  uint64_t first = 1, seeds = 0, bugs_max = 5;
  for (int i = 1; i + 1 < count; i += 2) {
    const uint64_t number = std::strtoull(words[i + 1], nullptr, 10);
    if (std::strcmp(words[i], "--seed") == 0) return replay(number);
    if (std::strcmp(words[i], "--seeds") == 0) seeds = number;
    if (std::strcmp(words[i], "--first") == 0) first = number;
    if (std::strcmp(words[i], "--bugs") == 0) bugs_max = number;
  }
  if (seeds == 0) {
    std::fprintf(stderr, "usage: fabric_sim --seeds N [--first F] [--bugs B] | --seed S\n");
    return 2;
  }
  return run_all(first, seeds, bugs_max);
}
