// Copies of memory that is not pinned: every byte arrives, calls return when CUDA says they may,
// and what cannot be staged is left to the driver.
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "multipath/native_copy.h"
#include "multipath/staging/ring_pool.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kGuard = 64;
constexpr uint8_t kBackground = 0xA7;

// Memory that CUDA knows nothing of.
class PageableBuffer {
 public:
  explicit PageableBuffer(uint64_t size_bytes) : bytes_(size_bytes, kBackground) {}
  uint8_t* data() { return bytes_.data(); }
  uint64_t size() const { return bytes_.size(); }
  void fill_random(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (uint8_t& byte : bytes_) byte = static_cast<uint8_t>(random());
  }

 private:
  std::vector<uint8_t> bytes_;
};

class StagingTest : public test::ServerTest {
 protected:
  void SetUp() override {
    gpus_needed = 1;
    ServerTest::SetUp();
    if (IsSkipped()) return;
    gate_ = std::make_unique<HostBuffer>(driver(), 4096);
    std::memset(gate_->data(), 0, 4096);
  }
  // Whatever failed, no stream stays held.
  void TearDown() override {
    if (gate_ != nullptr) release();
  }

  static Options staging_options() {
    Options options;
    options.threshold_bytes = 4 * kMiB;
    options.pageable_threads = 3;
    return options;
  }
  std::unique_ptr<Engine> open_staging() { return open_engine(staging_options()); }

  void hold(CUstream stream) {
    const auto gate = reinterpret_cast<CUdeviceptr>(gate_->data());
    MUST(driver(), cuStreamWaitValue32(stream, gate, 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  void release() {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(gate_->data())).store(1);
  }

  static Batch h2d(CUdeviceptr to, uint8_t* from, uint64_t size_bytes, CUstream stream) {
    return {Direction::kHostToDevice, from, to, size_bytes, stream};
  }
  static Batch d2h(uint8_t* to, CUdeviceptr from, uint64_t size_bytes, CUstream stream) {
    return {Direction::kDeviceToHost, to, from, size_bytes, stream};
  }

  // Staged, and answered with success.
  static ::testing::AssertionResult is_staged(Engine& engine, const Batch& transfer,
                                              bool is_synchronous = false) {
    const auto answer = engine.stage(transfer, is_synchronous);
    if (!answer) return ::testing::AssertionFailure() << "left to the driver";
    if (*answer == CUDA_SUCCESS) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "CUDA error " << *answer;
  }

  // What the device holds, read in pieces that are never staged.
  std::vector<uint8_t> read(CUdeviceptr from, uint64_t size_bytes) {
    std::vector<uint8_t> bytes(size_bytes);
    MUST(driver(), cuCtxSynchronize());
    MUST(driver(), cuMemcpyDtoH(bytes.data(), from, size_bytes));
    return bytes;
  }
  bool holds(CUdeviceptr device, const uint8_t* expected, uint64_t size_bytes) {
    return std::memcmp(read(device, size_bytes).data(), expected, size_bytes) == 0;
  }

  // There and back, with a look at every byte of both destinations and beside them.
  void round_trip(Engine& engine, CUstream stream, uint64_t size_bytes, uint64_t host_offset,
                  uint64_t device_offset, bool is_synchronous) {
    SCOPED_TRACE(::testing::Message()
                 << size_bytes << " bytes, host +" << host_offset << ", device +" << device_offset);
    PageableBuffer source(size_bytes + host_offset), landing(size_bytes + host_offset + kGuard);
    source.fill_random(size_bytes);
    uint8_t* from = source.data() + host_offset;
    uint8_t* to = landing.data() + host_offset;
    const uint64_t whole = device_offset + size_bytes + kGuard;
    DeviceBuffer device(driver(), whole);
    MUST(driver(), cuMemsetD8(device.at(), kBackground, whole));
    MUST(driver(), cuCtxSynchronize());

    ASSERT_TRUE(
        is_staged(engine, h2d(device.at(device_offset), from, size_bytes, stream), is_synchronous));
    const std::vector<uint8_t> seen = read(device.at(), whole);
    EXPECT_EQ(std::memcmp(seen.data() + device_offset, from, size_bytes), 0) << "H2D";
    for (uint64_t i = 0; i < device_offset; ++i) ASSERT_EQ(seen[i], kBackground) << i;
    for (uint64_t i = whole - kGuard; i < whole; ++i) ASSERT_EQ(seen[i], kBackground) << i;

    ASSERT_TRUE(
        is_staged(engine, d2h(to, device.at(device_offset), size_bytes, stream), is_synchronous));
    EXPECT_EQ(std::memcmp(to, from, size_bytes), 0) << "D2H, at return";
    for (uint64_t i = 0; i < host_offset; ++i) ASSERT_EQ(landing.data()[i], kBackground) << i;
    for (uint64_t i = 0; i < kGuard; ++i) ASSERT_EQ(to[size_bytes + i], kBackground) << i;
  }

  std::unique_ptr<HostBuffer> gate_;
};

TEST_F(StagingTest, EveryByteArrivesAtOddSizesAndOffsets) {
  auto engine = open_staging();
  const CUstream stream = new_stream();
  for (const uint64_t size : {kMiB, kMiB + 1, 2 * kMiB - 1, 7 * kMiB + 4097, 16 * kMiB + 3})
    for (const uint64_t offset : {0, 1, 13})
      for (const bool is_synchronous : {false, true})
        round_trip(*engine, stream, size, offset, (offset * 5) % 64, is_synchronous);
}

TEST_F(StagingTest, EveryByteArrivesInALongCopy) {
  auto engine = open_staging();
  round_trip(*engine, new_stream(), 200 * kMiB + 5, 3, 9, false);
}

TEST_F(StagingTest, DefaultStreamsStageToo) {
  auto engine = open_staging();
  for (const CUstream stream : {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD})
    for (const bool is_synchronous : {false, true})
      round_trip(*engine, stream, 9 * kMiB + 1, 0, 0, is_synchronous);
}

TEST_F(StagingTest, EveryGpuAndRandomShapes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  auto engine = open_staging();
  for (int gpu = 0; gpu < gpus(); ++gpu) {
    use_gpu(gpu);
    const CUstream stream = new_stream();
    for (int i = 0; i < 3; ++i)
      round_trip(*engine, stream, kMiB + random() % (24 * kMiB), random() % 4096, random() % 512,
                 random() % 2 == 0);
  }
}

TEST_F(StagingTest, BytesTravelOverSeveralLinks) {
  if (gpus() < 2) GTEST_SKIP() << "waived: needs 2 GPUs";
  auto engine = open_staging();
  round_trip(*engine, new_stream(), 128 * kMiB, 0, 0, false);
  int carriers = 0;
  for (const PathCount& count : engine->collect(1000))
    carriers += count.direction == Direction::kHostToDevice && count.bytes > 0 ? 1 : 0;
  EXPECT_GE(carriers, 2);
}

TEST_F(StagingTest, TheSourceMayChangeOnceTheCallHasReturned) {
  auto engine = open_staging();
  const CUstream stream = new_stream();
  for (const uint64_t size : {kMiB, 3 * kMiB - 1}) {  // fit a ring, so that the call returns
    PageableBuffer source(size);
    source.fill_random(size);
    const std::vector<uint8_t> sent(source.data(), source.data() + size);
    DeviceBuffer device(driver(), size);
    gate_->data()[0] = 0;
    hold(stream);
    ASSERT_TRUE(is_staged(*engine, h2d(device.at(), source.data(), size, stream)));
    ASSERT_EQ(driver().cuStreamQuery(stream), CUDA_ERROR_NOT_READY)
        << "before its stream got there";
    std::memset(source.data(), 0, size);
    release();
    synchronize(stream);
    EXPECT_TRUE(holds(device.at(), sent.data(), size));
  }
}

TEST_F(StagingTest, ASynchronousCopyFirstWaitsForItsStream) {
  auto engine = open_staging();
  const CUstream stream = new_stream();
  PageableBuffer source(2 * kMiB);
  source.fill_random(3);
  DeviceBuffer device(driver(), source.size());
  hold(stream);
  std::atomic<bool> has_returned{false};
  std::thread copier([&] {
    use_gpu(0);
    EXPECT_TRUE(is_staged(*engine, h2d(device.at(), source.data(), source.size(), stream), true));
    has_returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(has_returned);
  source.fill_random(4);  // as a host function of the stream's may
  release();
  copier.join();
  EXPECT_TRUE(holds(device.at(), source.data(), source.size())) << "what was there at its turn";
}

TEST_F(StagingTest, ACopyToTheHostSeesTheWorkBeforeItInItsStream) {
  auto engine = open_staging();
  const CUstream stream = new_stream();
  PageableBuffer landing(24 * kMiB + 7);
  DeviceBuffer device(driver(), landing.size());
  for (const uint8_t value : {1, 2, 3}) {
    MUST(driver(), cuMemsetD8Async(device.at(), value, landing.size(), stream));
    ASSERT_TRUE(is_staged(*engine, d2h(landing.data(), device.at(), landing.size(), stream)));
    for (uint64_t i = 0; i < landing.size(); ++i) ASSERT_EQ(landing.data()[i], value) << i;
  }
}

TEST_F(StagingTest, ThreadsCopyAtOnce) {
  auto engine = open_staging();
  std::vector<std::thread> threads;
  std::vector<CUstream> streams;
  for (int number = 0; number < 8; ++number) {
    use_gpu(number % gpus());
    streams.push_back(number < 6 ? new_stream() : CU_STREAM_PER_THREAD);
  }
  for (int number = 0; number < 8; ++number)
    threads.emplace_back([&, number] {
      use_gpu(number % gpus());
      PageableBuffer source(9 * kMiB + 11), landing(source.size());
      source.fill_random(static_cast<uint64_t>(number));
      DeviceBuffer device(driver(), source.size());
      for (int copy = 0; copy < 4; ++copy) {
        const Batch there = h2d(device.at(), source.data(), source.size(), streams[number]);
        if (!engine->stage(there, false)) {
          EXPECT_EQ(copy_natively(driver(), there), CUDA_SUCCESS);
        }
        const Batch back = d2h(landing.data(), device.at(), source.size(), streams[number]);
        std::memset(landing.data(), 0, landing.size());
        if (!engine->stage(back, false)) {
          EXPECT_EQ(copy_natively(driver(), back), CUDA_SUCCESS);
        }
        EXPECT_EQ(std::memcmp(source.data(), landing.data(), source.size()), 0) << number;
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(StagingTest, AHeldStreamHoldsBackNoOther) {
  auto engine = open_staging();
  const CUstream held = new_stream(), free_stream = new_stream();
  PageableBuffer source(96 * kMiB), landing(48 * kMiB);
  source.fill_random(7);
  DeviceBuffer device(driver(), source.size()), other(driver(), landing.size());
  hold(held);
  std::atomic<bool> has_returned{false};
  std::thread waiting([&] {  // more than a ring: it has to wait for its stream
    use_gpu(0);
    EXPECT_TRUE(is_staged(*engine, h2d(device.at(), source.data(), source.size(), held)));
    has_returned = true;
  });
  const uint64_t size = landing.size();
  EXPECT_TRUE(is_staged(*engine, h2d(other.at(), source.data(), size, free_stream)));
  EXPECT_TRUE(is_staged(*engine, d2h(landing.data(), other.at(), size, free_stream)));
  EXPECT_EQ(std::memcmp(landing.data(), source.data(), size), 0);
  EXPECT_FALSE(has_returned);
  release();
  waiting.join();
  EXPECT_TRUE(holds(device.at(), source.data(), source.size()));
}

TEST_F(StagingTest, WhenEveryRingIsTakenTheCopyIsNative) {
  auto engine = open_staging();
  PageableBuffer source(2 * kMiB);
  source.fill_random(4);
  DeviceBuffer device(driver(), source.size());
  std::vector<CUstream> held;
  for (int ring = 0; ring < staging::kRingsPerContext; ++ring) {
    held.push_back(new_stream());
    hold(held.back());
    ASSERT_TRUE(is_staged(*engine, h2d(device.at(), source.data(), source.size(), held.back())));
  }
  const CUstream free_stream = new_stream();
  const Batch one_more = h2d(device.at(), source.data(), source.size(), free_stream);
  EXPECT_FALSE(engine->stage(one_more, false).has_value());
  release();
  for (CUstream stream : held) synchronize(stream);
  EXPECT_TRUE(is_staged(*engine, one_more)) << "rings come back";
  EXPECT_TRUE(holds(device.at(), source.data(), source.size()));
}

// What begins in pinned memory and leaves it is for the driver to refuse (HostMemoryTest).
TEST_F(StagingTest, MemoryThatIsPinnedFurtherOnIsRight) {
  auto engine = open_staging();
  const CUstream stream = new_stream();
  constexpr uint64_t kSize = 12 * kMiB;
  void* mapped = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* bytes = static_cast<uint8_t*>(mapped);
  std::mt19937_64 random(5);
  DeviceBuffer device(driver(), kSize);
  struct Pin {
    uint64_t offset, size;
  };
  const std::vector<std::vector<Pin>> layouts = {{{kSize / 2, kSize / 2}},
                                                 {{kSize / 4, kSize / 4}, {3 * kSize / 4, kMiB}}};
  for (const auto& pins : layouts) {
    for (uint64_t i = 0; i < kSize; ++i) bytes[i] = static_cast<uint8_t>(random());
    const std::vector<uint8_t> sent(bytes, bytes + kSize);
    for (const Pin& pin : pins) MUST(driver(), cuMemHostRegister(bytes + pin.offset, pin.size, 0));
    ASSERT_TRUE(is_staged(*engine, h2d(device.at(), bytes, kSize, stream)));
    EXPECT_TRUE(holds(device.at(), sent.data(), kSize));
    std::memset(bytes, 0, kSize);
    ASSERT_TRUE(is_staged(*engine, d2h(bytes, device.at(), kSize, stream)));
    EXPECT_EQ(std::memcmp(bytes, sent.data(), kSize), 0);
    for (const Pin& pin : pins) MUST(driver(), cuMemHostUnregister(bytes + pin.offset));
  }
  munmap(mapped, kSize);
}

TEST_F(StagingTest, WhatCannotBeStagedIsLeftToTheDriver) {
  auto engine = open_staging();
  const CUstream stream = new_stream();
  PageableBuffer source(4 * kMiB);
  HostBuffer pinned(driver(), 4 * kMiB);
  DeviceBuffer device(driver(), 4 * kMiB);
  const auto stays_native = [&](const Batch& transfer) {
    return !engine->stage(transfer, false).has_value();
  };
  EXPECT_TRUE(stays_native(h2d(device.at(), source.data(), kMiB - 1, stream))) << "too small";
  EXPECT_TRUE(stays_native(h2d(device.at(), pinned.data(), 4 * kMiB, stream))) << "pinned";
  EXPECT_TRUE(stays_native(h2d(device.at(1), source.data(), 4 * kMiB, stream)))
      << "beyond the allocation";
  EXPECT_TRUE(stays_native(
      h2d(reinterpret_cast<CUdeviceptr>(pinned.data()), source.data(), 4 * kMiB, stream)))
      << "host to host";
  void* gone = mmap(nullptr, 4 * kMiB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(gone, 4 * kMiB);
  EXPECT_TRUE(stays_native(h2d(device.at(), static_cast<uint8_t*>(gone), 4 * kMiB, stream)))
      << "memory that is not there";

  Options off = staging_options();
  off.pageable_threads = 0;
  EXPECT_FALSE(open_engine(off)->stage(h2d(device.at(), source.data(), 4 * kMiB, stream), false))
      << "turned off";
}

TEST_F(StagingTest, AStreamThatRecordsAGraphIsTheDrivers) {
  auto engine = open_staging();
  const auto begin = reinterpret_cast<CUresult (*)(CUstream, CUstreamCaptureMode)>(
      symbol("cuStreamBeginCapture_v2"));
  const auto end = reinterpret_cast<CUresult (*)(CUstream, CUgraph*)>(symbol("cuStreamEndCapture"));
  const CUstream recording = new_stream(), other = new_stream();
  PageableBuffer source(40 * kMiB);
  source.fill_random(6);
  DeviceBuffer device(driver(), source.size());
  const auto copy_on = [&](CUstream stream) {
    return engine->stage(h2d(device.at(), source.data(), source.size(), stream), false);
  };
  ASSERT_EQ(begin(recording, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_FALSE(copy_on(recording).has_value());
  EXPECT_EQ(copy_on(other), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(end(recording, &graph), CUDA_SUCCESS) << "the other copy invalidated the capture";
  synchronize(other);
  EXPECT_TRUE(holds(device.at(), source.data(), source.size()));
}

TEST_F(StagingTest, AContextMayEndAndComeBack) {
  const auto create =
      reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(symbol("cuCtxCreate_v2"));
  const auto destroy = reinterpret_cast<CUresult (*)(CUcontext)>(symbol("cuCtxDestroy_v2"));
  auto engine = open_staging();
  for (int round = 0; round < 3; ++round) {
    CUcontext own = nullptr;
    ASSERT_EQ(create(&own, 0, 0), CUDA_SUCCESS);
    round_trip(*engine, CU_STREAM_LEGACY, 20 * kMiB, 0, 0, true);
    engine->forget_context(own);
    ASSERT_EQ(destroy(own), CUDA_SUCCESS);
    use_gpu(0);
    round_trip(*engine, CU_STREAM_LEGACY, 20 * kMiB, 0, 0, true);
  }
}

}  // namespace
}  // namespace braid::multipath
