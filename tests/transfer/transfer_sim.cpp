// Random runs of the scheduler with faults, in virtual time.
//
//   transfer_sim --seeds N [--first F] [--bugs B]   runs N seeds on all CPUs, until B of them have
//                                                   shown a bug (5); exit code 1 and their seeds
//   transfer_sim --seed S                           runs one, and says what happens
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "transfer/world.h"

namespace {

using braid::transfer::test::World;
using braid::transfer::test::WorldCounts;

thread_local volatile uint64_t seed_of_thread = 0;

/// A run that crashes says which one it was: nothing but what a signal handler may call.
void say_seed(int number) {
  char text[96] = "failed: seed ";
  char digits[24];
  size_t count = 0, end = std::strlen(text);
  for (uint64_t left = seed_of_thread; count == 0 || left > 0; left /= 10)
    digits[count++] = static_cast<char>('0' + left % 10);
  while (count > 0) text[end++] = digits[--count];
  constexpr char kRest[] = ": crashes (replay: transfer_sim --seed it)\n";
  std::memcpy(text + end, kRest, sizeof kRest - 1);
  (void)!write(STDOUT_FILENO, text, end + sizeof kRest - 1);
  signal(number, SIG_DFL);
  raise(number);
}

struct Run {
  std::atomic<uint64_t> next;
  std::atomic<int64_t> bugs_left;
  std::mutex mutex;
  WorldCounts sum;
};

void run_seeds(Run& run, uint64_t end) {
  WorldCounts sum;
  for (uint64_t seed; run.bugs_left > 0 && (seed = run.next++) < end;) {
    seed_of_thread = seed;
    try {
      const WorldCounts counts = World(seed).run();
      sum.requests += counts.requests;
      sum.done += counts.done;
      sum.postings += counts.postings;
      sum.reissued += counts.reissued;
      sum.fences += counts.fences;
      sum.probes += counts.probes;
      sum.faults += counts.faults;
    } catch (const std::exception& bug) {
      std::printf("failed: seed %zu: %s (replay: transfer_sim --seed %zu)\n", size_t{seed},
                  bug.what(), size_t{seed});
      std::fflush(stdout);
      --run.bugs_left;
    }
  }
  const std::lock_guard lock(run.mutex);
  run.sum.requests += sum.requests;
  run.sum.done += sum.done;
  run.sum.postings += sum.postings;
  run.sum.reissued += sum.reissued;
  run.sum.fences += sum.fences;
  run.sum.probes += sum.probes;
  run.sum.faults += sum.faults;
}

int run_all(uint64_t first, uint64_t count, uint64_t bugs_max) {
  const auto begin = std::chrono::steady_clock::now();
  Run run{first, static_cast<int64_t>(bugs_max), {}, {}};
  std::vector<std::thread> threads;
  for (unsigned i = std::max(1u, std::thread::hardware_concurrency()); i > 0; --i)
    threads.emplace_back([&] { run_seeds(run, first + count); });
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf(
      "%zu seeds in %.1f s: %zu requests, %zu done, %zu postings, %zu reissued, %zu fences, %zu "
      "probes, %zu faults\n",
      size_t{count}, took.count(), size_t{run.sum.requests}, size_t{run.sum.done},
      size_t{run.sum.postings}, size_t{run.sum.reissued}, size_t{run.sum.fences},
      size_t{run.sum.probes}, size_t{run.sum.faults});
  return run.bugs_left < static_cast<int64_t>(bugs_max) ? 1 : 0;
}

int replay(uint64_t seed) {
  seed_of_thread = seed;
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
  for (const int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) signal(number, say_seed);
  uint64_t first = 1, seeds = 0, bugs_max = 5;
  for (int i = 1; i + 1 < count; i += 2) {
    const uint64_t number = std::strtoull(words[i + 1], nullptr, 10);
    if (std::strcmp(words[i], "--seed") == 0) return replay(number);
    if (std::strcmp(words[i], "--seeds") == 0) seeds = number;
    if (std::strcmp(words[i], "--first") == 0) first = number;
    if (std::strcmp(words[i], "--bugs") == 0) bugs_max = number;
  }
  if (seeds == 0) {
    std::fprintf(stderr, "usage: transfer_sim --seeds N [--first F] [--bugs B] | --seed S\n");
    return 2;
  }
  return run_all(first, seeds, bugs_max);
}
