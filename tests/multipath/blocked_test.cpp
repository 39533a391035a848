// What the program holds back. Its own kernels hold every SM, and braid's cannot begin: a batch
// that waits for them goes on waiting, and the next ones are native; contiguous copies need no SM.
// Or its default stream is held while braid gets ready.
#include <cstring>

#include "cuda/bounded_wait.h"
#include "multipath/transfer_state.h"
#include "support/gate.h"
#include "support/server.h"
#include "support/test_kernels.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::Gate;
using test::HostBuffer;

constexpr uint64_t kSize = 16 << 20;
constexpr int kGpus = 4;  // that take part

class HeldTest : public test::ServerTest {
 protected:
  // Fails rather than waits for ever.
  bool ends(CUstream stream) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    return cuda::wait_until_idle(driver(), stream, deadline) == CUDA_SUCCESS;
  }
};

class BlockedTest : public HeldTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    Options options = every_size();
    options.relays.kind = RelayChoice::Kind::kList;
    options.relays.gpus = {1, 2, 3};
    engine_ = open_engine(options);
    filler_ = std::make_unique<HostBuffer>(driver(), kSize);
    sink_ = std::make_unique<DeviceBuffer>(driver(), kSize);
    gate_ = std::make_unique<Gate>(driver());
    stream_ = new_stream();
    begin_ = new_event();
    end_ = new_event();
    MUST(driver(), cuEventRecord(begin_, stream_));
  }

  // The program's own kernels hold every SM until the gate opens.
  void hold_every_sm() {
    constexpr int kThreads = 1024;
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      use_gpu(gpu);
      const int blocks = attribute(gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) *
                         attribute(gpu, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) /
                         kThreads;
      CUmodule module = nullptr;
      CUfunction kernel = nullptr;
      MUST(driver(), cuModuleLoadData(&module, test::test_kernels()));
      MUST(driver(), cuModuleGetFunction(&kernel, module, test::kSpinKernelName));
      test::SpinArgs args{gate_->address(), Gate::kOpen, 0};
      void* parameters[] = {&args};
      MUST(driver(), cuLaunchKernel(kernel, blocks, 1, 1, kThreads, 1, 1, 0, new_stream(),
                                    parameters, nullptr));
    }
    use_gpu(0);
  }

  void pass_ms(double passed_ms) {
    const double until_us = now_us() + 1000 * passed_ms;
    while (now_us() < until_us)
      MUST(driver(), cuMemcpyHtoDAsync(sink_->at(), filler_->data(), kSize, stream_));
  }
  // As a batch, which kernels carry, of two halves.
  Outcome send(HostBuffer& host, const DeviceBuffer& device, CUstream stream) {
    const Segment halves[] = {{host.data() + kSize / 2, device.at(kSize / 2), kSize / 2},
                              {host.data(), device.at(), kSize / 2}};
    return engine_->submit(Batch{Direction::kHostToDevice, halves, stream});
  }
  bool has_arrived(HostBuffer& host, const DeviceBuffer& device) {
    MUST(driver(), cuMemcpyDtoHAsync(filler_->data(), device.at(), kSize, stream_));
    synchronize(stream_);
    return std::memcmp(host.data(), filler_->data(), kSize) == 0;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HostBuffer> filler_;
  std::unique_ptr<DeviceBuffer> sink_;
  std::unique_ptr<Gate> gate_;

 private:
  int attribute(CUdevice device, CUdevice_attribute which) {
    int value = 0;
    MUST(driver(), cuDeviceGetAttribute(&value, which, device));
    return value;
  }
  double now_us() {
    MUST(driver(), cuEventRecord(end_, stream_));
    synchronize(stream_);
    return elapsed_us(begin_, end_);
  }

  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
};

TEST_F(BlockedTest, BatchesAreNativeAfterKernelsThatCannotBeginAndCopiesNeedNone) {
  HostBuffer first(driver(), kSize), second(driver(), kSize), third(driver(), kSize);
  first.fill_random(31);
  second.fill_random(32);
  third.fill_random(33);
  DeviceBuffer to_first(driver(), kSize), to_second(driver(), kSize), to_third(driver(), kSize);
  const CUstream waits = new_stream(), waits_too = new_stream(), goes = new_stream();
  hold_every_sm();
  pass_ms(50);
  EXPECT_EQ(send(first, to_first, waits).mover, Mover::kKernel);
  pass_ms(150);
  EXPECT_EQ(send(second, to_second, waits_too).mover, Mover::kKernel) << "nothing is certain yet";
  pass_ms(150);
  EXPECT_EQ(send(third, to_third, goes).verdict, Verdict::kBlocked);
  const Outcome outcome =
      engine_->submit({Direction::kHostToDevice, third.data(), to_third.at(), kSize, goes});
  EXPECT_EQ(outcome.verdict, Verdict::kAccelerated);
  EXPECT_EQ(outcome.mover, Mover::kCopyEngine);
  EXPECT_TRUE(ends(goes)) << "it waited for the kernels' turn";
  EXPECT_TRUE(has_arrived(third, to_third));
  EXPECT_EQ(driver().cuStreamQuery(waits), CUDA_ERROR_NOT_READY) << "the SMs were not held";

  gate_->open();
  EXPECT_TRUE(ends(waits));
  EXPECT_TRUE(ends(waits_too));
  EXPECT_TRUE(has_arrived(first, to_first));
  EXPECT_TRUE(has_arrived(second, to_second));
}

// What moves for long is not blocked: only what takes several times as long as expected.
TEST_F(BlockedTest, ALargeBatchIsGivenItsTime) {
  constexpr size_t kSegments = 200;
  constexpr uint64_t kSegmentBytes = 64 << 20;
  HostBuffer large(driver(), kSegmentBytes), small(driver(), kSize);
  const DeviceBuffer to_large(driver(), kSegmentBytes), to_small(driver(), kSize);
  const std::vector<Segment> segments(kSegments, {large.data(), to_large.at(), kSegmentBytes});
  const CUstream first = new_stream(), second = new_stream();
  hold_every_sm();
  pass_ms(50);
  const Outcome moved = engine_->submit(Batch{Direction::kHostToDevice, segments, first});
  ASSERT_EQ(moved.mover, Mover::kKernel);
  const double expected_ms = moved.forecast.expected_us[static_cast<size_t>(Mover::kKernel)] / 1000;
  ASSERT_GT(4 * expected_ms, 200) << "it is to be larger";
  EXPECT_EQ(send(small, to_small, second).mover, Mover::kKernel);
  pass_ms(150);
  EXPECT_EQ(send(small, to_small, second).mover, Mover::kKernel) << "it may move yet";
  gate_->open();
  EXPECT_TRUE(ends(first));
  EXPECT_TRUE(ends(second));
}

// The stream is held back, not the kernels.
TEST_F(BlockedTest, ATransferWhoseTurnHasNotComeIsNoSign) {
  HostBuffer first(driver(), kSize), second(driver(), kSize);
  DeviceBuffer to_first(driver(), kSize), to_second(driver(), kSize);
  const CUstream held = new_stream(), next = new_stream();
  gate_->hold(held);
  EXPECT_EQ(send(first, to_first, held).mover, Mover::kKernel);
  for (int copy = 0; copy < 3; ++copy) {
    pass_ms(150);
    EXPECT_EQ(send(second, to_second, next).mover, Mover::kKernel);
  }
  EXPECT_TRUE(ends(next));
  EXPECT_TRUE(has_arrived(second, to_second));
  gate_->open();
  EXPECT_TRUE(ends(held));
  EXPECT_TRUE(has_arrived(first, to_first));
}

// Relays open while the program holds a stream: nothing waits for it. What braid cleared for itself
// is not cleared again when the program's default stream goes on.
TEST_F(HeldTest, RelaysOpenMeanwhile) {
  constexpr uint64_t kSmall = 256 << 10;
  HostBuffer host(driver(), kSmall), landing(driver(), kSmall);
  DeviceBuffer device(driver(), kSmall);
  const CUstream stream = new_stream();
  Options options = every_size();
  options.mover = MoverChoice::kKernel;  // copy engines count nothing
  options.relays.kind = RelayChoice::Kind::kList;
  options.relays.gpus = {1};
  auto prepared = Engine::create(driver(), options);
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  const auto engine = std::move(prepared).value();
  ASSERT_TRUE(engine->add_context(nullptr).ok());
  Gate gate(driver());
  gate.hold(CU_STREAM_LEGACY);
  engine->request_relays(kEveryGpu);
  for (bool is_more = true; is_more;) {
    const auto opened = engine->open_next_relay();
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    is_more = opened.value();
  }
  engine->open_targets();
  for (size_t round = 0; round < 2 * kMostTransfers; ++round) {
    if (round == kMostTransfers) {
      gate.open();
      ASSERT_TRUE(ends(CU_STREAM_LEGACY));
    }
    host.fill_random(60 + round);
    ASSERT_EQ(engine->submit({Direction::kHostToDevice, host.data(), device.at(), kSmall, stream}),
              Verdict::kAccelerated);
    MUST(driver(), cuMemcpyDtoHAsync(landing.data(), device.at(), kSmall, stream));
    ASSERT_TRUE(ends(stream)) << "transfer " << round;
    ASSERT_EQ(std::memcmp(host.data(), landing.data(), kSmall), 0) << "transfer " << round;
  }
}

}  // namespace
}  // namespace braid::multipath
