// Copies to host memory that the program has mapped and never touched, of every kind: every byte
// arrives and none beside, and what the driver or the program answers for stays theirs.
#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "fresh_memory.h"
#include "support/eventually.h"
#include "support/gate.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::FreshMemory;
using test::HostBuffer;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kMostBytes = 41 * kMiB;

class FreshMemoryTest : public test::ServerTest {
 protected:
  void SetUp() override {
    gpus_needed = 1;
    ServerTest::SetUp();
    if (IsSkipped()) return;
    Options options;
    options.threshold_bytes = 4 * kMiB;
    options.pageable_threads = 3;
    engine_ = open_engine(options);
    stream_ = new_stream();
    source_ = std::make_unique<HostBuffer>(driver(), kMostBytes);
    source_->fill_random(11);
    device_ = std::make_unique<DeviceBuffer>(driver(), kMostBytes);
    MUST(driver(), cuMemcpyHtoD(device_->at(), source_->data(), kMostBytes));
  }

  std::optional<Staged> copy_to(uint8_t* to, uint64_t size_bytes) {
    return engine_->stage({Direction::kDeviceToHost, to, device_->at(), size_bytes, stream_}, true);
  }

  // The bytes have arrived, and those beside are still zero.
  void expect_copied(FreshMemory& memory, uint64_t begin, uint64_t size_bytes) {
    EXPECT_EQ(std::memcmp(memory.data() + begin, source_->data(), size_bytes), 0);
    for (uint64_t i = 0; i < begin; ++i) ASSERT_EQ(memory.data()[i], 0) << i;
    for (uint64_t i = begin + size_bytes; i < memory.size(); ++i)
      ASSERT_EQ(memory.data()[i], 0) << i;
  }

  std::unique_ptr<Engine> engine_;
  CUstream stream_ = nullptr;
  std::unique_ptr<HostBuffer> source_;
  std::unique_ptr<DeviceBuffer> device_;
};

TEST_F(FreshMemoryTest, EveryByteArrivesAroundTheEdgesOfHugePages) {
  for (const uint64_t begin :
       {uint64_t{0}, uint64_t{1}, uint64_t{64}, 2 * kMiB - 1, 2 * kMiB + 1, 3 * kMiB + 4095})
    for (const uint64_t size :
         {kMiB, 2 * kMiB, 4 * kMiB - 1, 4 * kMiB, 14 * kMiB + 1, 23 * kMiB + 4097}) {
      SCOPED_TRACE(::testing::Message() << size << " bytes at +" << begin);
      FreshMemory memory(30 * kMiB);
      ASSERT_EQ(copy_to(memory.data() + begin, size), CUDA_SUCCESS);
      expect_copied(memory, begin, size);
    }
}

TEST_F(FreshMemoryTest, EveryByteArrivesWhereHalfIsTouched) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 4; ++round) {
    FreshMemory memory(kMostBytes);
    for (int i = 0; i < 6; ++i) {
      const uint64_t at = random() % kMostBytes;
      std::memset(memory.data() + at, 0xEE, std::min(random() % (4 * kMiB), kMostBytes - at));
    }
    ASSERT_EQ(copy_to(memory.data(), kMostBytes), CUDA_SUCCESS);
    expect_copied(memory, 0, kMostBytes);
  }
}

TEST_F(FreshMemoryTest, SharedMemoryAndFilesGetTheirBytes) {
  constexpr uint64_t kSize = 17 * kMiB + 3;
  for (const int sharing : {MAP_SHARED, MAP_PRIVATE}) {
    const int file = memfd_create("braid-test", 0);
    ASSERT_GE(file, 0);
    ASSERT_EQ(ftruncate(file, 20 * kMiB), 0);
    FreshMemory memory(20 * kMiB, sharing, file), same(20 * kMiB, MAP_SHARED, file);
    close(file);
    ASSERT_EQ(copy_to(memory.data() + kMiB + 9, kSize), CUDA_SUCCESS);
    expect_copied(memory, kMiB + 9, kSize);
    const bool is_seen = same.data()[kMiB + 9] == source_->data()[0];
    EXPECT_EQ(is_seen, sharing == MAP_SHARED);
  }
}

TEST_F(FreshMemoryTest, AHoleInTheMiddleIsTheDrivers) {
  FreshMemory memory(24 * kMiB);
  munmap(memory.data() + 12 * kMiB, 4096);
  EXPECT_FALSE(copy_to(memory.data(), memory.size()).has_value());
  EXPECT_TRUE(memory.is_untouched(0, 12 * kMiB));
}

// A program may let memory be written when it is: its handler then runs, as it does natively.
uint8_t* guarded = nullptr;
constexpr uint64_t kGuardedBytes = 4 * kMiB;
std::atomic<bool> has_faulted = false;  // several threads may
void unguard(int, siginfo_t* fault, void*) {
  const auto* at = static_cast<uint8_t*>(fault->si_addr);
  if (at < guarded || at >= guarded + kGuardedBytes) _exit(1);
  has_faulted = true;
  mprotect(guarded, kGuardedBytes, PROT_READ | PROT_WRITE);
}

TEST_F(FreshMemoryTest, MemoryThatTheProgramGuardsIsWrittenByItsLeave) {
  FreshMemory memory(24 * kMiB);
  guarded = memory.data() + 9 * kMiB;
  struct sigaction action {
  }, before{};
  action.sa_sigaction = unguard;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGSEGV, &action, &before), 0);
  ASSERT_EQ(mprotect(guarded, kGuardedBytes, PROT_READ), 0);
  EXPECT_EQ(copy_to(memory.data(), memory.size()), CUDA_SUCCESS);
  sigaction(SIGSEGV, &before, nullptr);
  EXPECT_TRUE(has_faulted);
  expect_copied(memory, 0, memory.size());
}

TEST_F(FreshMemoryTest, PagesAreMadeWhileTheBytesAreStillAwaited) {
  FreshMemory memory(40 * kMiB);
  test::Gate gate(driver());
  gate.hold(stream_);
  std::thread copier([&] {
    use_gpu(0);
    EXPECT_EQ(copy_to(memory.data() + 64, 32 * kMiB), CUDA_SUCCESS);
  });
  constexpr uint64_t kAhead = 8 * kMiB;
  EXPECT_TRUE(test::eventually([&] { return memory.is_there(0, kAhead); }));
  EXPECT_TRUE(memory.is_untouched(24 * kMiB, memory.size())) << "more than the ring holds";
  gate.open();
  copier.join();
  expect_copied(memory, 64, 32 * kMiB);
}

TEST_F(FreshMemoryTest, ThreadsCopyAtOnce) {
  std::vector<std::thread> threads;
  std::vector<CUstream> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(new_stream());
  for (const CUstream stream : streams)
    threads.emplace_back([&, stream] {
      use_gpu(0);
      for (int round = 0; round < 4; ++round) {
        FreshMemory memory(15 * kMiB);
        const auto answer = engine_->stage(
            {Direction::kDeviceToHost, memory.data() + 7, device_->at(), 13 * kMiB + 1, stream},
            true);
        ASSERT_EQ(answer, CUDA_SUCCESS);
        expect_copied(memory, 7, 13 * kMiB + 1);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace braid::multipath
