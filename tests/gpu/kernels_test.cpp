// What only real GPUs can show: kernels of the program beside braid's.
#include <atomic>
#include <chrono>
#include <cstring>

#include "support/server.h"

extern "C" const unsigned char braid_test_kernels[];

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kSize = 256 << 20;

class KernelsTest : public test::ServerTest, public testing::WithParamInterface<MoverChoice> {
 protected:
  void SetUp() override {
    setenv("BRAID_TEST_DRIVER", "libcuda.so.1", 0);
    ServerTest::SetUp();
    if (IsSkipped()) return;
    word_ = std::make_unique<HostBuffer>(driver(), 4096);
    std::memset(word_->data(), 0, 4096);
    Options options = every_size();
    options.mover = GetParam();
    engine_ = open_engine(options);
    source_ = std::make_unique<HostBuffer>(driver(), kSize);
    source_->fill_random(31);
    landing_ = std::make_unique<HostBuffer>(driver(), kSize);
    device_ = std::make_unique<DeviceBuffer>(driver(), kSize);
  }

  // Whatever failed, no kernel reads what is freed behind this.
  void TearDown() override {
    if (word_ == nullptr) return;
    release();
    for (int gpu = 0; gpu < 2; ++gpu) {
      use_gpu(gpu);
      MUST(driver(), cuCtxSynchronize());
    }
  }

  CUfunction kernel(const char* name) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    MUST(driver(), cuModuleLoadData(&module, braid_test_kernels));
    MUST(driver(), cuModuleGetFunction(&function, module, name));
    return function;
  }

  // Every multiprocessor of the current GPU full, until release().
  CUstream occupy(unsigned blocks, unsigned threads) {
    const CUstream stream = new_stream();
    void* word = word_->data();
    void* arguments[] = {&word};
    MUST(driver(), cuLaunchKernel(kernel("hold_until"), blocks, 1, 1, threads, 1, 1, 0, stream,
                                  arguments, nullptr));
    return stream;
  }
  void release() {
    std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(word_->data())).store(1);
  }

  unsigned sm_count() {
    int count = 0;
    CUdevice device = 0;
    MUST(driver(), cuCtxGetDevice(&device));
    MUST(driver(), cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    return static_cast<unsigned>(count);
  }

  Verdict h2d(CUstream stream) {
    return engine_->submit(
        {Direction::kHostToDevice, source_->data(), device_->at(), kSize, stream});
  }
  bool device_is_right() {
    MUST(driver(), cuMemcpyDtoH(landing_->data(), device_->at(), kSize));
    return std::memcmp(landing_->data(), source_->data(), kSize) == 0;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HostBuffer> word_, source_, landing_;
  std::unique_ptr<DeviceBuffer> device_;
};

INSTANTIATE_TEST_SUITE_P(Movers, KernelsTest,
                         testing::Values(MoverChoice::kKernel, MoverChoice::kCopyEngine),
                         [](const auto& param) {
                           return param.param == MoverChoice::kKernel ? "Kernel" : "CopyEngine";
                         });

TEST_P(KernelsTest, ABusyRelayHoldsNoTransferBack) {
  use_gpu(1);
  const CUstream busy = occupy(4 * sm_count(), 1024);  // twice what fits: no room for any block
  use_gpu(0);
  const CUstream stream = new_stream();
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(h2d(stream), Verdict::kAccelerated);
    synchronize(stream);
    EXPECT_TRUE(device_is_right());
  }
  EXPECT_EQ(driver().cuStreamQuery(busy), CUDA_ERROR_NOT_READY) << "the relay is still busy";
  release();
  use_gpu(1);
  synchronize(busy);
  engine_->collect(5000);
  use_gpu(0);
  ASSERT_EQ(h2d(stream), Verdict::kAccelerated) << "late kernels left, transfers came back";
  synchronize(stream);
}

// What no more fits behind a held stream is the caller's to copy natively.
TEST_P(KernelsTest, AStreamHeldByAKernelHoldsUpNoSubmit) {
  const CUstream stream = occupy(1, 32);
  int accelerated = 0;
  for (int i = 0; i < 64; ++i) {
    const Verdict verdict = h2d(stream);
    ASSERT_TRUE(verdict == Verdict::kAccelerated || verdict == Verdict::kSaturated);
    if (verdict == Verdict::kAccelerated) ++accelerated;
  }
  EXPECT_GE(accelerated, 4);
  EXPECT_EQ(driver().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  release();
  synchronize(stream);
  EXPECT_TRUE(device_is_right());
}

// A kernel behind the copy, on the same stream, on a blocking stream behind the legacy stream, and
// on a stream that waits for an event, sees every byte.
TEST_P(KernelsTest, KernelsBehindACopySeeItsBytes) {
  uint64_t expected = 0;
  for (uint64_t i = 0; i < kSize / 4; ++i)
    expected += reinterpret_cast<const uint32_t*>(source_->data())[i];
  const CUfunction sum_words = kernel("sum_words");
  DeviceBuffer sum(driver(), 8);
  const CUstream own = new_stream(), blocking = new_stream(CU_STREAM_DEFAULT), other = new_stream();
  const CUevent event = new_event();
  const auto check = [&](CUstream copy, CUstream reader, int round) {
    MUST(driver(), cuMemsetD8(device_->at(), static_cast<unsigned char>(round), kSize));
    MUST(driver(), cuMemsetD8(sum.at(), 0, 8));
    MUST(driver(), cuCtxSynchronize());
    ASSERT_EQ(h2d(copy), Verdict::kAccelerated);
    if (reader == other) {
      MUST(driver(), cuEventRecord(event, copy));
      MUST(driver(), cuStreamWaitEvent(reader, event, 0));
    }
    CUdeviceptr words = device_->at(), result = sum.at();
    unsigned long long count = kSize / 4;
    void* arguments[] = {&words, &count, &result};
    MUST(driver(), cuLaunchKernel(sum_words, 512, 1, 1, 256, 1, 1, 0, reader, arguments, nullptr));
    uint64_t seen = 0;
    synchronize(reader);
    MUST(driver(), cuMemcpyDtoH(&seen, sum.at(), 8));
    ASSERT_EQ(seen, expected) << "round " << round;
  };
  for (int round = 0; round < 10; ++round) {
    check(own, own, round);
    check(CU_STREAM_LEGACY, blocking, round);
    check(own, other, round);
    check(CU_STREAM_PER_THREAD, CU_STREAM_PER_THREAD, round);
  }
}

// Copy engines ask no multiprocessor for anything. (A kernel of a batch waits for one: README,
// limits.)
class FullTargetTest : public KernelsTest {};

INSTANTIATE_TEST_SUITE_P(Movers, FullTargetTest,
                         testing::Values(MoverChoice::kAuto, MoverChoice::kCopyEngine),
                         [](const auto& param) {
                           return param.param == MoverChoice::kAuto ? "Auto" : "CopyEngine";
                         });

TEST_P(FullTargetTest, GetsItsBytes) {
  const CUstream busy = occupy(4 * sm_count(), 1024);
  const CUstream stream = new_stream();
  ASSERT_EQ(h2d(stream), Verdict::kAccelerated);
  synchronize(stream);
  EXPECT_EQ(driver().cuStreamQuery(busy), CUDA_ERROR_NOT_READY);
  release();
  synchronize(busy);
  EXPECT_TRUE(device_is_right());
}

}  // namespace
}  // namespace braid::multipath
