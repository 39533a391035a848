// A relay's GPU fails, or its context ends, while its kernel holds slices that nobody else will
// move: every byte arrives all the same. Failed contexts stay so: each TEST is its own process.
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>

#include "cuda/kernels/gate.h"
#include "cuda/kernels/image.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kSize = 64 << 20;
constexpr uint64_t kSegment = 64 << 10;
constexpr int kRelay = 2;
// Longer than any transfer takes by itself: what ends later has been looked after.
constexpr double kMendedUs = 500'000;

class RelayFailureTest : public test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    engine_ = open_engine();
    for (int gpu = 0; gpu < gpus(); ++gpu) {
      use_gpu(gpu);
      CUmodule module = nullptr;
      MUST(driver(), cuModuleLoadData(&module, cuda::gate_kernel_image()));
      MUST(driver(), cuModuleGetFunction(&fails_.emplace_back(), module, cuda::kFailKernelName));
      streams_.push_back(new_stream());
    }
    use_gpu(0);
  }

  // A kernel of the program's own faults there.
  void fail(int gpu) {
    use_gpu(gpu);
    cuda::GateArgs args{};
    void* parameters[] = {&args};
    MUST(driver(),
         cuLaunchKernel(fails_[gpu], 1, 1, 1, 1, 1, 1, 0, streams_[gpu], parameters, nullptr));
    use_gpu(0);
  }

  // Waits in the driver, where the emulated server's time passes by itself. Where a gate stays
  // closed, the test ends by its time limit.
  CUresult end_of(CUstream stream) { return driver().cuStreamSynchronize(stream); }

  Outcome copy(Direction direction, HostBuffer& host, const DeviceBuffer& device, CUstream stream) {
    return engine_->submit({direction, host.data(), device.at(), kSize, stream});
  }

  uint64_t counted_bytes() {
    const auto counts = engine_->collect(5000);
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0},
                           [](uint64_t sum, const PathCount& count) { return sum + count.bytes; });
  }

  std::unique_ptr<Engine> engine_;

 private:
  std::vector<CUfunction> fails_;
  std::vector<CUstream> streams_;
};

// What the program sees of a copy that is under way when the relay fails.
class UnderWayTest : public RelayFailureTest,
                     public ::testing::WithParamInterface<std::tuple<Direction, bool>> {
 protected:
  Outcome submit(HostBuffer& host, const DeviceBuffer& device, CUstream stream) {
    const auto [direction, is_batch] = GetParam();
    if (!is_batch) return copy(direction, host, device, stream);
    for (uint64_t at = 0; at < kSize; at += kSegment)
      segments_.push_back({host.data() + at, device.at(kSize - kSegment - at), kSegment});
    return engine_->submit({direction, segments_, stream});
  }

  // The copy's other end, read natively, in the host's order.
  void fetch(HostBuffer& to, const DeviceBuffer& device) {
    const CUstream stream = new_stream();
    const uint64_t step = std::get<1>(GetParam()) ? kSegment : kSize;
    for (uint64_t at = 0; at < kSize; at += step)
      MUST(driver(), cuMemcpyDtoHAsync(to.data() + at, device.at(kSize - step - at), step, stream));
    synchronize(stream);
  }

 private:
  std::vector<Segment> segments_;
};

TEST_P(UnderWayTest, EveryByteArrives) {
  HostBuffer host(driver(), kSize), other(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  host.fill_random(41);
  other.fill_random(42);
  if (std::get<0>(GetParam()) == Direction::kDeviceToHost)
    MUST(driver(), cuMemcpyHtoD(device.at(), other.data(), kSize));
  const CUstream stream = new_stream();
  const CUevent begin = new_event(), end = new_event();
  MUST(driver(), cuEventRecord(begin, stream));
  const Outcome outcome = submit(host, device, stream);
  ASSERT_EQ(outcome, Verdict::kAccelerated);
  ASSERT_NE(outcome.via >> kRelay & 1, 0u);
  MUST(driver(), cuEventRecord(end, stream));
  fail(kRelay);
  ASSERT_EQ(end_of(stream), CUDA_SUCCESS) << "the gate stayed closed, or GPU 0 failed as well";
  EXPECT_GT(elapsed_us(begin, end), kMendedUs) << "the relay held no slice: nothing was tested";
  fetch(other, device);
  EXPECT_EQ(std::memcmp(host.data(), other.data(), kSize), 0);
  EXPECT_EQ(counted_bytes(), kSize);
}

std::string name_of(const ::testing::TestParamInfo<UnderWayTest::ParamType>& tested) {
  const auto [direction, is_batch] = tested.param;
  return std::string(direction == Direction::kHostToDevice ? "to_device" : "back") +
         (is_batch ? "_batch" : "");
}

INSTANTIATE_TEST_SUITE_P(Copies, UnderWayTest,
                         ::testing::Combine(::testing::Values(Direction::kHostToDevice,
                                                              Direction::kDeviceToHost),
                                            ::testing::Bool()),
                         name_of);

TEST_F(RelayFailureTest, WhatWasSubmittedBehindItArrivesTooAndWhatComesAfterGoesWithoutTheRelay) {
  constexpr int kCopies = 6;
  std::vector<std::unique_ptr<HostBuffer>> hosts;
  std::vector<std::unique_ptr<DeviceBuffer>> devices;
  const std::array<CUstream, 2> streams = {new_stream(), new_stream()};
  HostBuffer landing(driver(), kSize);
  for (int number = 0; number < kCopies; ++number) {
    hosts.push_back(std::make_unique<HostBuffer>(driver(), kSize));
    hosts.back()->fill_random(50 + static_cast<uint64_t>(number));
    devices.push_back(std::make_unique<DeviceBuffer>(driver(), kSize));
  }
  for (int number = 0; number < kCopies; ++number)
    ASSERT_EQ(copy(Direction::kHostToDevice, *hosts[number], *devices[number], streams[number % 2]),
              Verdict::kAccelerated);
  fail(kRelay);
  for (const CUstream stream : streams) ASSERT_EQ(end_of(stream), CUDA_SUCCESS);
  for (int number = 0; number < kCopies; ++number) {
    MUST(driver(), cuMemcpyDtoH(landing.data(), devices[number]->at(), kSize));
    EXPECT_EQ(std::memcmp(hosts[number]->data(), landing.data(), kSize), 0) << "copy " << number;
  }
  EXPECT_EQ(counted_bytes(), kCopies * kSize) << "every ticket came to an end";

  const Outcome next = copy(Direction::kHostToDevice, *hosts[0], *devices[1], streams[0]);
  EXPECT_EQ(next, Verdict::kAccelerated);
  EXPECT_EQ(next.via >> kRelay & 1, 0u) << "it is not asked again";
  EXPECT_EQ(end_of(streams[0]), CUDA_SUCCESS);
  ASSERT_EQ(engine_->problems().size(), 1u);
  EXPECT_NE(engine_->problems()[0].find("GPU 2 has failed"), std::string::npos);
}

// The error is the program's own, and nothing of braid's waits for what cannot come.
TEST_F(RelayFailureTest, AFailedTargetIsTheProgramsError) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(copy(Direction::kHostToDevice, host, device, stream), Verdict::kAccelerated);
  fail(0);
  EXPECT_EQ(end_of(stream), CUDA_ERROR_LAUNCH_FAILED);
  const auto before = std::chrono::steady_clock::now();
  engine_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(4)) << "it waited";
}

// A relay whose context is destroyed while its kernel still waits for the program's stream.
TEST_F(RelayFailureTest, ARelayMayEndBeforeItsTurnHasCome) {
  HostBuffer host(driver(), kSize), landing(driver(), kSize), word(driver(), sizeof(uint32_t));
  host.fill_random(43);
  std::memset(word.data(), 0, sizeof(uint32_t));
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  MUST(driver(), cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(word.data()), 1,
                                     CU_STREAM_WAIT_VALUE_GEQ));
  ASSERT_EQ(copy(Direction::kHostToDevice, host, device, stream), Verdict::kAccelerated);
  engine_->forget_context(context(kRelay));
  auto* reset =
      reinterpret_cast<decltype(&cuDevicePrimaryCtxReset)>(symbol("cuDevicePrimaryCtxReset_v2"));
  ASSERT_EQ(reset(kRelay), CUDA_SUCCESS);
  const uint32_t value = 1;
  std::memcpy(word.data(), &value, sizeof(value));
  ASSERT_EQ(end_of(stream), CUDA_SUCCESS);
  MUST(driver(), cuMemcpyDtoH(landing.data(), device.at(), kSize));
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
  EXPECT_EQ(counted_bytes(), kSize) << "its ticket came to an end";
}

}  // namespace
}  // namespace braid::multipath
