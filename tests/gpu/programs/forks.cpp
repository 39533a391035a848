// Processes that fork: before CUDA starts (both then use it), afterwards (the child does not, and
// ends in either way, also beside threads that copy), and to run another CUDA program.
//   forks SIZE_BYTES
#include <thread>

#include "driver_program.h"

namespace {

using namespace program;

void copy_and_look(size_t size_bytes, uint64_t seed) {
  const Pattern pattern(seed);
  const CUstream stream = new_stream();
  const TripBuffers buffers = make_buffers(size_bytes, pattern);
  for (int round = 0; round < 3; ++round) {
    there_and_back(buffers, size_bytes, stream);
    MUST(cuStreamSynchronize(stream));
    pattern.check(buffers.landing, size_bytes, "a copy beside forks");
  }
  MUST(cuStreamDestroy(stream));
  free_buffers(buffers);
}

int use_cuda(size_t size_bytes, uint64_t seed) {
  use_gpus(1);
  copy_and_look(size_bytes, seed);
  print_counts();
  return 0;
}

pid_t fork_flushed() {
  std::fflush(nullptr);
  const pid_t child = fork();
  require(child >= 0, "fork");
  return child;
}

// Each child ends while the parent's copies are in flight, and takes none of them with it.
void child_ends(size_t size_bytes, uint64_t seed, void (*end)(int)) {
  const Pattern pattern(seed);
  const CUstream stream = new_stream();
  const TripBuffers buffers = make_buffers(size_bytes, pattern);
  there_and_back(buffers, size_bytes, stream);
  const pid_t child = fork_flushed();
  if (child == 0) end(7);
  require(exit_code_of(child, "a child that uses no CUDA") == 7, "a child's exit code is another");
  MUST(cuStreamSynchronize(stream));
  pattern.check(buffers.landing, size_bytes, "copies in flight across a fork");
  copy_and_look(size_bytes, seed + 1);
}

// The threads may hold any lock of the process when it forks, and the child's exit handlers run.
void children_leave_beside_threads(size_t size_bytes) {
  constexpr uint64_t kThreads = 2, kRounds = 8;
  constexpr int kChildren = 24;
  const std::vector<CUcontext> contexts = use_gpus();
  std::vector<std::thread> threads;
  for (uint64_t number = 0; number < kThreads; ++number)
    threads.emplace_back([number, size_bytes, &contexts] {
      MUST(cuCtxSetCurrent(contexts[number % contexts.size()]));
      for (uint64_t round = 0; round < kRounds; ++round)
        copy_and_look(size_bytes, 100 * (1 + number) + round);
    });
  for (int child = 0; child < kChildren; ++child) {
    const pid_t leaves = fork_flushed();
    if (leaves == 0) std::exit(9);
    require(exit_code_of(leaves, "a child beside threads") == 9, "its exit code is another");
  }
  for (std::thread& thread : threads) thread.join();
}

// fork and exec, as subprocesses are started.
void run_another(size_t size_bytes, char** argv) {
  const pid_t child = fork_flushed();
  if (child == 0) {
    char another[] = "another";
    char* words[] = {argv[0], argv[1], another, nullptr};
    execv("/proc/self/exe", words);
    _exit(127);
  }
  copy_and_look(size_bytes, 30);
  require(exit_code_of(child, "another program") == 0, "another program failed");
}

}  // namespace

int main(int argc, char** argv) {
  const size_t size_bytes = size_argument(argc, argv);
  if (argc > 2) return use_cuda(size_bytes, 1);
  const pid_t early = fork_flushed();
  if (early == 0) return use_cuda(size_bytes, 2);
  use_gpus(1);
  copy_and_look(size_bytes, 3);
  require(exit_code_of(early, "a child that uses CUDA") == 0, "a child that uses CUDA failed");
  child_ends(size_bytes, 10, [](int status) { _exit(status); });
  child_ends(size_bytes, 20, [](int status) { std::exit(status); });
  children_leave_beside_threads(size_bytes);
  run_another(size_bytes, argv);
  print_counts();
  return 0;
}
