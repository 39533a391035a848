// The driver carries work on by itself once the program is silent, and not before: what the program
// finds does not depend on how fast the machine runs it.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "fixture.h"
#include "gate.h"
#include "process_test.h"
#include "support/cpu_time.h"

namespace braid::emulator_test {
namespace {

using std::chrono::milliseconds;

constexpr size_t kLongBytes = 16 << 20;  // some 300 us over PCIe
constexpr uint64_t kShortNs = 100'000;   // far from the end of that

// A program that has a long copy under way and looks at the clock.
struct Program {
  void begin_long_copy() {
    EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, kLongBytes, beside), CUDA_SUCCESS);
    before_ns = clock.now_ns();
  }
  uint64_t passed_ns() { return clock.now_ns() - before_ns; }
  void end_long_copy() { EXPECT_EQ(server.cu.cuStreamSynchronize(beside), CUDA_SUCCESS); }

  Emulated server;
  Clock& clock = *server.cu.clock;
  CUcontext context = server.use(0);
  CUstream beside = server.stream();
  CUdeviceptr device = server.device_memory(kLongBytes);
  uint8_t* host = server.pinned_memory(kLongBytes);
  uint64_t before_ns = 0;
};

double thread_cpu_ms() { return 1e3 * braid::test::cpu_seconds(CLOCK_THREAD_CPUTIME_ID); }

// It waits for host functions that are busy for long, while virtual time stands still. Work must
// not be carried on past the end of the last before the program can look; whom the machine runs
// first is chance: ten times. (Between the two, the driver has looked whether the program is
// there.)
TEST(Silence, IsNotThatOfAProgramThatWaitsInTheDriver) {
  Program program;
  const auto& cu = program.server.cu;
  const auto launch =
      program.server.symbol<CUresult (*)(CUstream, CUhostFn, void*)>("cuLaunchHostFunc");
  const CUhostFn work = [](void*) {
    const auto end = std::chrono::steady_clock::now() + milliseconds(50);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  CUstream stream = program.server.stream();
  for (int run = 0; run < 10; ++run) {
    program.begin_long_copy();
    EXPECT_EQ(launch(stream, work, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cu.cuMemsetD8Async(program.device, 0, 4, stream), CUDA_SUCCESS);
    EXPECT_EQ(launch(stream, work, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_LT(program.passed_ns(), kShortNs) << run;
    program.end_long_copy();
  }
}

// For a while, lets the calling process run a tenth of the time. It never ends with that process
// stopped.
class Starved {
 public:
  Starved() : starved_(getpid()), starver_(fork()) {
    if (starver_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < 20; ++i) {
      kill(starved_, SIGSTOP);
      std::this_thread::sleep_for(milliseconds(90));
      kill(starved_, SIGCONT);
      std::this_thread::sleep_for(milliseconds(10));
    }
    _exit(0);
  }
  bool lasts() const { return waitpid(starver_, nullptr, WNOHANG) == 0; }

 private:
  pid_t starved_;
  pid_t starver_;
};

TEST(Silence, IsNotThatOfAProgramThatTheMachineDoesNotRun) {
  const ChildResult child = in_child([] {
    Program program;
    const Starved starved;
    int late = 0;
    while (starved.lasts()) {
      program.begin_long_copy();
      std::this_thread::sleep_for(milliseconds(10));
      if (program.passed_ns() > kShortNs) ++late;
      program.end_long_copy();
    }
    return std::to_string(late) + (testing::Test::HasFailure() ? ", and calls failed" : "");
  });
  EXPECT_EQ(child.status, 0);
  EXPECT_EQ(child.output, "0") << "looks at the clock that came late";
}

// For as long as it lives, the calling thread gets little of its core, while other threads of the
// process run whenever they want to.
class Crowded {
 public:
  Crowded() {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(sched_getcpu(), &core);
    EXPECT_EQ(sched_setaffinity(0, sizeof core, &core), 0);
    crowd_ = fork();
    EXPECT_GE(crowd_, 0);
    if (crowd_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (thread_cpu_ms() >= 0) {
      }
    }
    EXPECT_EQ(setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19), 0);
  }
  ~Crowded() {
    if (crowd_ < 0) return;
    kill(crowd_, SIGKILL);
    waitpid(crowd_, nullptr, 0);
  }

 private:
  pid_t crowd_ = -1;
};

TEST(Silence, IsNotThatOfAThreadThatWaitsForACore) {
  const ChildResult child = in_child([] {
    Program program;
    program.begin_long_copy();  // the driver's own thread runs from here on
    program.end_long_copy();
    const Crowded crowded;
    int late = 0, held_up = 0;
    for (int turn = 0; turn < 100 && held_up < 3; ++turn) {
      program.begin_long_copy();
      const auto begun = std::chrono::steady_clock::now();
      const double enough_ms = thread_cpu_ms() + 2;
      while (thread_cpu_ms() < enough_ms) {
      }
      if (std::chrono::steady_clock::now() - begun > milliseconds(100)) ++held_up;
      if (program.passed_ns() > kShortNs) ++late;
      program.end_long_copy();
    }
    EXPECT_EQ(held_up, 3);
    return std::to_string(late) + (testing::Test::HasFailure() ? ", and calls failed" : "");
  });
  EXPECT_EQ(child.status, 0);
  EXPECT_EQ(child.output, "0") << "looks at the clock that came late";
}

// It polls, without a call.
TEST(Silence, EndsTheWaitOfAProgramThatPolls) {
  Program program;
  Gate word(program.server);
  program.begin_long_copy();
  EXPECT_EQ(program.server.cu.cuStreamWriteValue32(
                program.beside, reinterpret_cast<CUdeviceptr>(word.word()), 1, 0),
            CUDA_SUCCESS);
  while (std::atomic_ref<uint32_t>(*word.word()).load() == 0) {
  }
  EXPECT_GT(program.passed_ns(), kShortNs);
}

}  // namespace
}  // namespace braid::emulator_test
