// How a pageable copy is cut, and the threads that copy it.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <random>
#include <thread>
#include <vector>

#include "multipath/staging/chunks.h"
#include "multipath/staging/thread_pool.h"
#include "multipath/thread.h"
#include "support/cpu_time.h"

namespace braid::multipath::staging {
namespace {

TEST(Chunks, CoverEveryCopyAndFitTheirSlots) {
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost})
    for (const uint64_t size : {uint64_t{1}, kThresholdBytes, kThresholdBytes + 1,
                                3 * kSlotBytes - 1, 100 * kSlotBytes}) {
      uint64_t left = size;
      for (int index = 0; left > 0; ++index) {
        const uint64_t chunk = chunk_bytes(direction, index, left);
        ASSERT_GT(chunk, 0u);
        ASSERT_LE(chunk, std::min(left, kSlotBytes));
        left -= chunk;
        ASSERT_LT(index, 130) << "too many chunks for " << size << " bytes";
      }
    }
}

TEST(Chunks, BeginSmallAndToTheHostEndSmall) {
  const uint64_t long_way = uint64_t{1} << 30;
  EXPECT_LT(chunk_bytes(Direction::kHostToDevice, 0, long_way), kSlotBytes / 4);
  EXPECT_EQ(chunk_bytes(Direction::kHostToDevice, 3, long_way), kSlotBytes);
  EXPECT_EQ(chunk_bytes(Direction::kHostToDevice, 9, kSlotBytes), kSlotBytes);
  EXPECT_LE(chunk_bytes(Direction::kDeviceToHost, 9, kSlotBytes), kSlotBytes / 2);
}

std::vector<uint8_t> random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

TEST(ThreadPoolTest, HasAThreadWhereThereIsASecondCpu) {
  cpu_set_t all, few;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&few);
  int count = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE && count < 3; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    CPU_SET(cpu, &few);
    ASSERT_EQ(sched_setaffinity(0, sizeof few, &few), 0);
    ++count;
    const UsableCpus cpus = usable_cpus();
    EXPECT_EQ(default_thread_count(cpus), cpus.count > 1 ? 1 : 0) << count << " CPUs";
  }
}

TEST(ThreadPoolTest, HasAQuarterOfTheCpusThatItMayUse) {
  const auto threads_on = [](int count) {
    UsableCpus cpus;
    cpus.count = count;
    return default_thread_count(cpus);
  };
  EXPECT_EQ(threads_on(0), 0) << "nothing is known";
  EXPECT_EQ(threads_on(1), 0);
  EXPECT_EQ(threads_on(2), 1);
  EXPECT_EQ(threads_on(32), 8);
  EXPECT_EQ(threads_on(192), 16);
}

TEST(ThreadPoolTest, CopiesEveryByteAndNoMore) {
  ThreadPool pool(3);
  ASSERT_TRUE(pool.is_usable());
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{131071}, size_t{131073}, size_t{5000001}}) {
    const auto from = random_bytes(size + 1, size);
    for (const Stores stores : {Stores::kCached, Stores::kPastCaches})
      for (const size_t offset : {0, 1, 63}) {
        std::vector<uint8_t> to(offset + size + 1, 0x5A);
        ThreadPool::Task(pool, to.data() + offset, from.data(), size, stores).finish();
        EXPECT_EQ(std::memcmp(to.data() + offset, from.data(), size), 0) << size;
        for (size_t i = 0; i < offset; ++i) ASSERT_EQ(to[i], 0x5A) << size;
        EXPECT_EQ(to[offset + size], 0x5A) << size;
      }
  }
}

TEST(ThreadPoolTest, ServesSeveralThreadsAtOnce) {
  ThreadPool pool(3);
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed)
    threads.emplace_back([&pool, seed] {
      const auto from = random_bytes(3000001, seed);
      for (int round = 0; round < 50; ++round) {
        std::vector<uint8_t> to(from.size());
        ThreadPool::Task task(pool, to.data(), from.data(), to.size(), Stores::kCached);
        task.finish();
        ASSERT_EQ(to, from) << seed;
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadPoolTest, SpendsNoTimeWhenIdle) {
  ThreadPool pool(8);
  const auto from = random_bytes(4 << 20, 1);
  std::vector<uint8_t> to(from.size());
  ThreadPool::Task(pool, to.data(), from.data(), to.size(), Stores::kCached).finish();
  // On a busy machine its threads rest late. One that does not is seen whenever it is looked at.
  double spent_ms = 1;
  for (int look = 0; look < 20 && spent_ms >= 1; ++look) {
    const double before = 1e3 * braid::test::cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    spent_ms = 1e3 * braid::test::cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - before;
  }
  EXPECT_LT(spent_ms, 1.0);
}

// A signal for the process goes to a thread of the program, which here has it blocked too.
TEST(ThreadPoolTest, TakesNoSignalOfThePrograms) {
  ThreadPool pool(4);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &mask, nullptr);
  kill(getpid(), SIGUSR1);  // ends the process if a thread takes it
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGUSR1), 1);
}

// Memory of the program's that it makes readable when somebody touches it.
class LazyMemory {
 public:
  explicit LazyMemory(size_t size_bytes) : size_bytes_(size_bytes) {
    memory_ = mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    self = this;
    struct sigaction action {};
    action.sa_handler = [](int) { mprotect(self->memory_, self->size_bytes_, PROT_READ); };
    sigaction(SIGSEGV, &action, &before_);
  }
  ~LazyMemory() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(memory_, size_bytes_);
  }
  LazyMemory(const LazyMemory&) = delete;
  LazyMemory& operator=(const LazyMemory&) = delete;
  const void* data() const { return memory_; }

 private:
  static inline LazyMemory* self = nullptr;
  void* memory_;
  size_t size_bytes_;
  struct sigaction before_ {};
};

constexpr size_t kLazyBytes = 1 << 20;

TEST(ThreadPoolTest, FaultsAreTheProgramsToHandle) {
  for (int round = 0; round < 20; ++round) {
    ThreadPool pool(3);
    const LazyMemory from(kLazyBytes);
    std::vector<uint8_t> to(kLazyBytes, 0x5A);
    ThreadPool::Task task(pool, to.data(), from.data(), kLazyBytes, Stores::kCached);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the pool's threads touch it
    task.finish();
    EXPECT_EQ(to, std::vector<uint8_t>(kLazyBytes));
  }
}

TEST(ThreadTest, FaultsAreTheProgramsToHandle) {
  const LazyMemory from(kLazyBytes);
  Thread thread;
  ASSERT_TRUE(thread.start(
      [](void* memory) { EXPECT_EQ(*static_cast<const volatile uint8_t*>(memory), 0); },
      const_cast<void*>(from.data())));
  thread.join();
}

TEST(ThreadPoolTest, IsOfNoUseToAForkedChild) {
  const ThreadPool pool(2);
  const pid_t child = fork();
  if (child == 0) _exit(pool.is_usable() ? 1 : 0);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(pool.is_usable());
}

}  // namespace
}  // namespace braid::multipath::staging
