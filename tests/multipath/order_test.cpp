// A braid copy takes its place in stream order, exactly as a native one would.
#include <atomic>
#include <cstring>
#include <thread>

#include "multipath/transfer_state.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kSize = 8 << 20;

class OrderTest : public test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    engine_ = open_engine();
    source_ = std::make_unique<HostBuffer>(driver(), kSize);
    source_->fill_random(11);
    landing_ = std::make_unique<HostBuffer>(driver(), kSize);
    device_ = std::make_unique<DeviceBuffer>(driver(), kSize);
    gate_ = std::make_unique<HostBuffer>(driver(), 4096);
    std::memset(gate_->data(), 0, 4096);
  }

  // Whatever failed, no stream stays held: freeing memory waits for it.
  void TearDown() override {
    if (gate_ != nullptr) release();
  }

  // A stream that waits here goes on when the test opens gate `number`: as a program's long kernel.
  void hold(CUstream stream, int number = 0) {
    MUST(driver(), cuStreamWaitValue32(stream, gate_address(number), 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  void release(int number = 0) {
    std::atomic_ref<uint32_t>(reinterpret_cast<uint32_t*>(gate_->data())[number]).store(1);
  }
  CUdeviceptr gate_address(int number) {
    return reinterpret_cast<CUdeviceptr>(gate_->data()) + number * sizeof(uint32_t);
  }

  Verdict h2d(CUstream stream) {
    return engine_->submit(
        {Direction::kHostToDevice, source_->data(), device_->at(), kSize, stream});
  }
  Verdict d2h(CUstream stream) {
    return engine_->submit(
        {Direction::kDeviceToHost, landing_->data(), device_->at(), kSize, stream});
  }
  bool arrived() { return std::memcmp(landing_->data(), source_->data(), kSize) == 0; }
  bool is_pending(CUstream stream) {
    return driver().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HostBuffer> source_, landing_, gate_;
  std::unique_ptr<DeviceBuffer> device_;
};

TEST_F(OrderTest, SubmittingDoesNotWaitForAStreamThatIsHeld) {
  const CUstream stream = new_stream();
  hold(stream);
  ASSERT_EQ(h2d(stream), Verdict::kAccelerated);
  ASSERT_EQ(d2h(stream), Verdict::kAccelerated);
  EXPECT_TRUE(is_pending(stream));
  release();
  synchronize(stream);
  EXPECT_TRUE(arrived());
}

TEST_F(OrderTest, ACopyWaitsForEarlierWorkOfItsStream) {
  const CUstream stream = new_stream();
  MUST(driver(), cuMemsetD8(device_->at(), 0, kSize));
  MUST(driver(), cuCtxSynchronize());
  hold(stream);
  MUST(driver(), cuMemcpyHtoDAsync(device_->at(), source_->data(), kSize, stream));
  ASSERT_EQ(d2h(stream), Verdict::kAccelerated);
  release();
  synchronize(stream);
  EXPECT_TRUE(arrived());
}

TEST_F(OrderTest, LaterWorkOfTheStreamWaitsForACopy) {
  const CUstream stream = new_stream();
  for (int round = 0; round < 20; ++round) {
    std::memset(landing_->data(), 0, kSize);
    MUST(driver(),
         cuMemsetD8Async(device_->at(), static_cast<unsigned char>(round), kSize, stream));
    ASSERT_EQ(h2d(stream), Verdict::kAccelerated);
    MUST(driver(), cuMemcpyDtoHAsync(landing_->data(), device_->at(), kSize, stream));
    synchronize(stream);
    ASSERT_TRUE(arrived()) << round;
  }
}

TEST_F(OrderTest, AnEventBehindACopyFiresOnlyWhenItHasLanded) {
  const CUstream stream = new_stream(), other = new_stream();
  const CUevent event = new_event();
  hold(stream);
  ASSERT_EQ(h2d(stream), Verdict::kAccelerated);
  MUST(driver(), cuEventRecord(event, stream));
  EXPECT_EQ(driver().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  MUST(driver(), cuStreamWaitEvent(other, event, 0));
  MUST(driver(), cuMemcpyDtoHAsync(landing_->data(), device_->at(), kSize, other));
  release();
  synchronize(other);
  EXPECT_TRUE(arrived());
}

TEST_F(OrderTest, AHeldStreamHoldsUpNoOtherStreamsCopies) {
  const CUstream held = new_stream(), free = new_stream();
  DeviceBuffer elsewhere(driver(), kSize);
  hold(held);
  ASSERT_EQ(
      engine_->submit({Direction::kHostToDevice, source_->data(), elsewhere.at(), kSize, held}),
      Verdict::kAccelerated);
  ASSERT_EQ(h2d(free), Verdict::kAccelerated);
  ASSERT_EQ(d2h(free), Verdict::kAccelerated);
  synchronize(free);
  EXPECT_TRUE(arrived());
  EXPECT_TRUE(is_pending(held));
  release();
  synchronize(held);
}

// Each GPU carries braid's streams for every other: one that waits must not stop the rest.
TEST_F(OrderTest, AHeldStreamHoldsUpNoOtherGpusCopies) {
  const CUstream held = new_stream();
  hold(held);
  ASSERT_EQ(h2d(held), Verdict::kAccelerated);
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;  // freeing would wait for the relays' streams
  for (int gpu = 1; gpu < gpus(); ++gpu) {
    use_gpu(gpu);
    DeviceBuffer& elsewhere =
        *buffers.emplace_back(std::make_unique<DeviceBuffer>(driver(), kSize));
    for (int number = 0; number < 3; ++number) {
      const CUstream stream = new_stream();
      ASSERT_EQ(engine_->submit(
                    {Direction::kHostToDevice, source_->data(), elsewhere.at(), kSize, stream}),
                Verdict::kAccelerated);
      ASSERT_EQ(engine_->submit(
                    {Direction::kDeviceToHost, landing_->data(), elsewhere.at(), kSize, stream}),
                Verdict::kAccelerated);
      for (int looks = 0; is_pending(stream); ++looks) {
        ASSERT_LT(looks, 200000) << "GPU " << gpu << " waits for GPU 0's held stream";
      }
      ASSERT_TRUE(arrived());
    }
  }
  EXPECT_TRUE(is_pending(held));
  release();
  use_gpu(0);
  synchronize(held);
}

// nvbandwidth holds the stream, enqueues everything, then lets go.
TEST_F(OrderTest, ManyCopiesBehindAHeldStreamAllLand) {
  Options options = every_size();
  options.mover = MoverChoice::kKernel;
  engine_ = open_engine(options);
  const CUstream stream = new_stream();
  constexpr int kCopies = 400;
  constexpr uint64_t kPart = kSize / kCopies;
  MUST(driver(), cuMemsetD8(device_->at(), 0, kSize));
  MUST(driver(), cuCtxSynchronize());
  hold(stream);
  int accelerated = 0, native = 0;
  for (uint64_t i = 0; i < kCopies; ++i) {
    uint8_t* from = source_->data() + i * kPart;
    const CUdeviceptr to = device_->at(i * kPart);
    const Verdict verdict = engine_->submit({Direction::kHostToDevice, from, to, kPart, stream});
    if (verdict == Verdict::kAccelerated) {
      ++accelerated;
      continue;
    }
    ASSERT_EQ(verdict, Verdict::kSaturated);
    ++native;
    MUST(driver(), cuMemcpyHtoDAsync(to, from, kPart, stream));
  }
  EXPECT_EQ(accelerated, kMostOfOneStream) << "beyond that the driver might block";
  EXPECT_EQ(native, kCopies - kMostOfOneStream);
  release();
  MUST(driver(), cuMemcpyDtoHAsync(landing_->data(), device_->at(), kCopies * kPart, stream));
  synchronize(stream);
  EXPECT_EQ(std::memcmp(landing_->data(), source_->data(), kCopies * kPart), 0);
  engine_->collect(5000);
  EXPECT_EQ(h2d(stream), Verdict::kAccelerated) << "transfers come back";
  synchronize(stream);
}

TEST_F(OrderTest, TheLegacyStreamKeepsItsBarriersWithBlockingStreams) {
  const CUstream blocking = new_stream(CU_STREAM_DEFAULT);
  for (int round = 0; round < 10; ++round) {
    std::memset(landing_->data(), 0, kSize);
    // The copy on the legacy stream waits for the blocking stream's memset ...
    MUST(driver(), cuMemsetD8Async(device_->at(), 1, kSize, blocking));
    ASSERT_EQ(h2d(CU_STREAM_LEGACY), Verdict::kAccelerated);
    // ... and the blocking stream's next work waits for the copy.
    MUST(driver(), cuMemcpyDtoHAsync(landing_->data(), device_->at(), kSize, blocking));
    synchronize(blocking);
    ASSERT_TRUE(arrived()) << round;
  }
}

TEST_F(OrderTest, TheLegacyStreamWaitsForAHeldBlockingStream) {
  const CUstream blocking = new_stream(CU_STREAM_DEFAULT);
  hold(blocking);
  MUST(driver(), cuMemcpyHtoDAsync(device_->at(), source_->data(), kSize, blocking));
  ASSERT_EQ(d2h(CU_STREAM_LEGACY), Verdict::kAccelerated);
  EXPECT_TRUE(is_pending(CU_STREAM_LEGACY));
  release();
  synchronize(CU_STREAM_LEGACY);
  EXPECT_TRUE(arrived());
}

TEST_F(OrderTest, PerThreadStreamsOfTwoThreadsAreIndependent) {
  hold(CU_STREAM_PER_THREAD);
  ASSERT_EQ(h2d(CU_STREAM_PER_THREAD), Verdict::kAccelerated);
  DeviceBuffer elsewhere(driver(), kSize);
  std::thread other([&] {
    MUST(driver(), cuCtxSetCurrent(context(0)));
    EXPECT_EQ(engine_->submit({Direction::kHostToDevice, source_->data(), elsewhere.at(), kSize,
                               CU_STREAM_PER_THREAD}),
              Verdict::kAccelerated);
    MUST(driver(), cuStreamSynchronize(CU_STREAM_PER_THREAD));
  });
  other.join();  // hangs if this thread's held stream held up that thread's
  release();
  synchronize(CU_STREAM_PER_THREAD);
}

TEST_F(OrderTest, BothDirectionsAndManyStreamsFromManyThreads) {
  constexpr int kThreads = 6;
  constexpr uint64_t kPart = kSize / kThreads / 4096 * 4096;
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number)
    threads.emplace_back([&, number] {
      MUST(driver(), cuCtxSetCurrent(context(0)));
      const CUstream stream = new_stream();
      const uint64_t offset = number * kPart;
      for (int round = 0; round < 20; ++round) {
        uint8_t* from = source_->data() + offset;
        uint8_t* to = landing_->data() + offset;
        const CUdeviceptr middle = device_->at(offset);
        std::memset(to, round, kPart);
        if (engine_->submit({Direction::kHostToDevice, from, middle, kPart, stream}) !=
            Verdict::kAccelerated)
          MUST(driver(), cuMemcpyHtoDAsync(middle, from, kPart, stream));
        if (engine_->submit({Direction::kDeviceToHost, to, middle, kPart, stream}) !=
            Verdict::kAccelerated)
          MUST(driver(), cuMemcpyDtoHAsync(to, middle, kPart, stream));
        MUST(driver(), cuStreamSynchronize(stream));
        EXPECT_EQ(std::memcmp(to, from, kPart), 0) << number << ", round " << round;
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace braid::multipath
