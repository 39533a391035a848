// Threads that act by the clock of the driver table: on the emulated server, in virtual time.
#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "fixture.h"
#include "gate.h"
#include "process_test.h"

namespace braid::emulator_test {
namespace {

constexpr uint64_t kUs = 1000;  // in ns

// A thread that acts by the clock. `work` runs under a hold each time somebody calls `wake`.
class Worker {
 public:
  Worker(Clock& clock, std::function<void()> work) : clock_(clock), work_(std::move(work)) {
    clock_.hold();
    thread_ = std::thread([this] { run(); });
  }
  ~Worker() {
    stop_ = true;
    wake();
    thread_.join();
  }
  void wake() {
    clock_.now_ns();
    const std::lock_guard guard(mutex_);
    ++wakes_;
    if (!std::exchange(idle_, false)) return;
    clock_.hold();
    woken_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (int served = 0;; ++served) {
      if (wakes_ == served) {
        idle_ = true;
        clock_.release();
        woken_.wait(lock, [&] { return !idle_; });
      }
      if (stop_) return clock_.release();
      lock.unlock();
      work_();
      lock.lock();
    }
  }

  Clock& clock_;
  std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable woken_;
  int wakes_ = 0;
  bool idle_ = false;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Keeps the machine busy, so that threads run late and in changing order.
class LoadedByThreads {
 public:
  explicit LoadedByThreads(int count) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this] {
        while (!stop_) {
        }
      });
  }
  ~LoadedByThreads() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// The same by processes, for a program that polls: CPU time of its own would count as silence.
class LoadedByProcesses {
 public:
  explicit LoadedByProcesses(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
        }
      }
      children_.push_back(child);
    }
  }
  ~LoadedByProcesses() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }

 private:
  std::vector<pid_t> children_;
};

// Posts copies one after another, each when it finds the one before landed, as a mover does.
struct Poster {
  explicit Poster(Emulated& emulated)
      : server(emulated),
        context(server.use(0)),
        stream(server.stream()),
        device(server.device_memory(kBytes)),
        host(server.pinned_memory(kBytes)),
        gate(server) {
    for (int i = 0; i <= kCopies; ++i) landed.push_back(server.event());
  }
  void post() {
    EXPECT_EQ(server.cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(server.cu.cuEventRecord(landed[0], stream), CUDA_SUCCESS);
    for (int i = 1; i <= kCopies; ++i) {
      const size_t size = kBytes / kCopies * i;
      EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, size, stream), CUDA_SUCCESS);
      EXPECT_EQ(server.cu.cuEventRecord(landed[i], stream), CUDA_SUCCESS);
      while (server.cu.cuEventQuery(landed[i]) == CUDA_ERROR_NOT_READY)
        server.cu.clock->sleep_ns(5 * kUs);
    }
    gate.open();
  }
  // When each copy landed and when the program's stream went on, to the last bit.
  std::string times(CUevent begin, CUevent end) {
    std::string text;
    for (const CUevent event : landed) append(text, server.elapsed_us(begin, event));
    append(text, server.elapsed_us(begin, end));
    return text + " " + std::to_string(server.cu.clock->now_ns());
  }
  static void append(std::string& text, double us) {
    char number[40];
    std::snprintf(number, sizeof(number), "%a ", us);
    text += number;
  }

  static constexpr int kCopies = 20;
  static constexpr size_t kBytes = 4 << 20;
  Emulated& server;
  CUcontext context;
  CUstream stream;
  CUdeviceptr device;
  uint8_t* host;
  Gate gate;
  std::vector<CUevent> landed;
};

std::string post_while_main_synchronizes() {
  const LoadedByThreads load(3);
  Emulated server;
  Poster poster(server);
  Worker worker(*server.cu.clock, [&] { poster.post(); });
  CUstream stream = server.stream();
  CUevent begin = server.recorded(stream);
  poster.gate.close(stream);
  CUevent end = server.recorded(stream);
  worker.wake();
  EXPECT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  return poster.times(begin, end);
}

std::string post_while_main_works_and_asks() {
  const LoadedByProcesses load(3);
  Emulated server;
  Poster poster(server);
  Worker worker(*server.cu.clock, [&] { poster.post(); });
  CUstream stream = server.stream();
  CUdeviceptr device = server.device_memory(Poster::kBytes);
  CUevent begin = server.recorded(stream);
  worker.wake();
  // The program goes on making calls while the worker makes its own, over the same link.
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(server.cu.cuMemcpyHtoDAsync(device, poster.host, Poster::kBytes, stream),
              CUDA_SUCCESS);
  poster.gate.close(stream);
  CUevent end = server.recorded(stream);
  int asked = 0;
  while (server.cu.cuEventQuery(end) == CUDA_ERROR_NOT_READY) ++asked;
  return poster.times(begin, end) + " " + std::to_string(asked);
}

void expect_the_same_every_time(const std::function<std::string()>& work, int runs) {
  const ChildResult first = in_child(work);
  ASSERT_EQ(first.status, 0);
  ASSERT_NE(first.output, "");
  for (int run = 1; run < runs; ++run) EXPECT_EQ(in_child(work).output, first.output) << run;
}

TEST(Clock, APollingThreadsCopiesHaveTheSameTimesInEveryRun) {
  expect_the_same_every_time(post_while_main_synchronizes, 20);
}

TEST(Clock, SoTheyHaveBesideAProgramThatMakesCallsOfItsOwn) {
  expect_the_same_every_time(post_while_main_works_and_asks, 20);
}

TEST(Clock, ASleepLastsExactlyItsTime) {
  Emulated server;
  Clock& clock = *server.cu.clock;
  ASSERT_NE(&clock, &system_clock());
  clock.sleep_ns(0);
  for (const uint64_t ns :
       {uint64_t{1}, uint64_t{12'345}, uint64_t{3'600'000'000'000}, uint64_t{0}}) {
    const uint64_t before = clock.now_ns();
    clock.sleep_ns(ns);
    EXPECT_EQ(clock.now_ns() - before, ns);
  }
  clock.release();
}

TEST(Clock, TimeDoesNotPassForAThreadThatHoldsIt) {
  Emulated server;
  Clock& clock = *server.cu.clock;
  server.use(0);
  CUstream stream = server.stream();
  CUdeviceptr device = server.device_memory(1 << 20);
  uint8_t* host = server.pinned_memory(1 << 20);
  clock.sleep_ns(0);
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, 1 << 20, stream), CUDA_SUCCESS);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(server.cu.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  clock.sleep_ns(1000 * kUs);
  EXPECT_EQ(server.cu.cuStreamQuery(stream), CUDA_SUCCESS);
  // A call that waits for the GPU lets time pass.
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, 1 << 20, stream), CUDA_SUCCESS);
  const uint64_t before = clock.now_ns();
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_GT(clock.now_ns(), before + 10 * kUs);
  clock.release();
}

// Two threads wake up at the same moments; each writes down who it is and when.
std::string two_sleepers() {
  const LoadedByThreads load(2);
  Emulated server;
  Clock& clock = *server.cu.clock;
  std::string log;
  std::mutex mutex;
  const auto act = [&](char name, uint64_t period_ns) {
    for (int i = 0; i < 6; ++i) {
      clock.sleep_ns(period_ns);
      const std::lock_guard guard(mutex);
      log += name + std::to_string(clock.now_ns() / kUs) + " ";
    }
    clock.release();
  };
  clock.hold();
  clock.hold();
  std::thread first(act, 'a', 20 * kUs);
  std::thread second(act, 'b', 30 * kUs);
  first.join();
  second.join();
  return log;
}

TEST(Clock, SleepersWakeInOrderOldestFirst) {
  for (int run = 0; run < 10; ++run)
    EXPECT_EQ(in_child(two_sleepers).output,
              "a20 b30 a40 a60 b60 a80 b90 a100 a120 b120 b150 b180 ");
}

TEST(Clock, AHoldThatIsNeverReleasedDoesNotHangTheProgram) {
  Emulated server;
  server.use(0);
  CUstream stream = server.stream();
  CUdeviceptr device = server.device_memory(1 << 20);
  server.cu.clock->hold();
  const auto began = std::chrono::steady_clock::now();
  ASSERT_EQ(server.cu.cuMemsetD8Async(device, 1, 1 << 20, stream), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_GT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
  // Patience is lost once, not with every call; and only with the hold that was stuck.
  const auto again = std::chrono::steady_clock::now();
  server.cu.clock->hold();
  std::thread([&] {
    server.cu.clock->sleep_ns(5 * kUs);
    server.cu.clock->release();
  }).join();
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_LT(std::chrono::steady_clock::now() - again, std::chrono::seconds(1));
}

TEST(Clock, AGateOpensAtTheTimeOfTheThreadThatStoresTheValue) {
  Emulated server;
  server.use(0);
  Gate gate(server);
  CUstream stream = server.stream();
  CUevent begin = server.recorded(stream);
  ASSERT_EQ(server.cu.cuEventSynchronize(begin), CUDA_SUCCESS);
  gate.close(stream);
  CUevent end = server.recorded(stream);
  uint64_t stored_ns = 0;
  uint64_t waited_ns = 0;
  Worker worker(*server.cu.clock, [&] {
    const uint64_t woken_ns = server.cu.clock->now_ns();
    server.cu.clock->sleep_ns(70 * kUs);
    stored_ns = server.cu.clock->now_ns();
    waited_ns = stored_ns - woken_ns;
    gate.open();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // others could look too early
    server.cu.clock->sleep_ns(500 * kUs);
  });
  const uint64_t before_ns = server.cu.clock->now_ns();
  worker.wake();
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(waited_ns, 70 * kUs);
  EXPECT_EQ(stored_ns, before_ns + 70 * kUs);
  // h200x4: a stream goes on 6.5 us after the value it waits for, the CPU 3.8 us after the stream.
  EXPECT_EQ(server.cu.clock->now_ns(), stored_ns + 10'300);
  EXPECT_GT(server.elapsed_us(begin, end), 76.5);
  EXPECT_LT(server.elapsed_us(begin, end), 95);
}

TEST(Clock, StreamsWriteWordsOfHostMemoryThatAThreadPolls) {
  Emulated server;
  CUcontext context = server.use(0);
  Gate gate(server);
  CUstream stream = server.stream();
  CUdeviceptr device = server.device_memory(8 << 20);
  uint8_t* host = server.pinned_memory(8 << 20);
  uint64_t seen_ns = 0;
  Worker worker(*server.cu.clock, [&] {
    while (std::atomic_ref<uint32_t>(*gate.word()).load() == 0) server.cu.clock->sleep_ns(kUs);
    seen_ns = server.cu.clock->now_ns();
  });
  ASSERT_EQ(server.cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(server.cu.cuMemcpyHtoDAsync(device, host, 8 << 20, stream), CUDA_SUCCESS);
  ASSERT_EQ(
      server.cu.cuStreamWriteValue32(stream, reinterpret_cast<CUdeviceptr>(gate.word()), 1, 0),
      CUDA_SUCCESS);
  worker.wake();
  ASSERT_EQ(server.cu.cuStreamSynchronize(stream), CUDA_SUCCESS);
  const uint64_t done_ns = server.cu.clock->now_ns();
  server.cu.clock->sleep_ns(10 * kUs);
  server.cu.clock->release();
  EXPECT_LT(seen_ns, done_ns + kUs);
  EXPECT_GT(seen_ns, done_ns - 10 * kUs);
}

TEST(Clock, AForkedChildHasNoVirtualTimeAndDoesNotHang) {
  Emulated server;
  server.use(0);
  server.cu.clock->hold();
  const ChildResult child = in_child([&] {
    server.cu.clock->hold();
    server.cu.clock->sleep_ns(kUs);
    server.cu.clock->release();
    return std::to_string(server.cu.clock->now_ns());
  });
  EXPECT_EQ(child.status, 0);
  EXPECT_EQ(child.output, "0");
}

TEST(Clock, AProcessEndsWhileAThreadSleeps) {
  const ChildResult child = in_child([] {
    static Emulated server;
    server.cu.clock->hold();
    std::thread([] {
      for (;;) server.cu.clock->sleep_ns(1'000'000'000);
    }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return std::string("ended");
  });
  EXPECT_EQ(child.status, 0);
  EXPECT_EQ(child.output, "ended");
}

}  // namespace
}  // namespace braid::emulator_test
