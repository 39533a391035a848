// A relay's GPU fails, or its context ends, while its kernel holds slices that nobody else will
// move: every byte arrives all the same, where the driver lets the other contexts live. Failed
// contexts stay so: each TEST is its own process.
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include "cuda/kernels/gate.h"
#include "cuda/kernels/image.h"
#include "multipath/ticket.h"
#include "support/gate.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::Gate;
using test::HostBuffer;

constexpr uint64_t kSize = 64 << 20;
constexpr uint64_t kSegment = 64 << 10;
constexpr int kRelay = 2;
// Longer than any transfer takes by itself, of the machine's time: what ends later has been looked
// after.
constexpr std::chrono::milliseconds kMended{500};

class RelayFailureTest : public test::ServerTest {
 protected:
  void SetUp() override {
    setenv("BRAID_FAULTS", faults().c_str(), 1);
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

  virtual std::string faults() const { return R"({"contexts_fail_alone": true})"; }

  // A kernel of the program's own faults there.
  void fail(int gpu) {
    use_gpu(gpu);
    cuda::GateArgs args{};
    void* parameters[] = {&args};
    MUST(driver(),
         cuLaunchKernel(fails_[gpu], 1, 1, 1, 1, 1, 1, 0, streams_[gpu], parameters, nullptr));
    EXPECT_EQ(driver().cuStreamSynchronize(streams_[gpu]), CUDA_ERROR_LAUNCH_FAILED);
    use_gpu(0);
  }

  // By the program, and the engine hears of it as it does in the preload library.
  void reset(int gpu) {
    engine_->forget_context(context(gpu));
    auto* native =
        reinterpret_cast<decltype(&cuDevicePrimaryCtxReset)>(symbol("cuDevicePrimaryCtxReset_v2"));
    ASSERT_EQ(native(gpu), CUDA_SUCCESS);
  }

  // Where a gate stays closed, the test ends by its time limit.
  CUresult end_of(CUstream stream) { return driver().cuStreamSynchronize(stream); }
  // The same, of a transfer that the relay's failure holds up.
  CUresult mended_end_of(CUstream stream) {
    const auto before = std::chrono::steady_clock::now();
    const CUresult end = end_of(stream);
    EXPECT_GT(std::chrono::steady_clock::now() - before, kMended)
        << "the relay held no slice: nothing was tested";
    return end;
  }

  // Nothing of braid's waits for what cannot come.
  void close_engine() {
    const auto before = std::chrono::steady_clock::now();
    engine_.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(4)) << "it waited";
  }

  Outcome copy(Direction direction, HostBuffer& host, const DeviceBuffer& device, CUstream stream) {
    return engine_->submit({direction, host.data(), device.at(), kSize, stream});
  }

  // Read natively.
  bool has_arrived(HostBuffer& host, const DeviceBuffer& device) {
    HostBuffer landing(driver(), host.size());
    MUST(driver(), cuMemcpyDtoH(landing.data(), device.at(), host.size()));
    return std::memcmp(host.data(), landing.data(), host.size()) == 0;
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
  const Outcome outcome = submit(host, device, stream);
  ASSERT_EQ(outcome, Verdict::kAccelerated);
  ASSERT_NE(outcome.via >> kRelay & 1, 0u);
  fail(kRelay);
  ASSERT_EQ(mended_end_of(stream), CUDA_SUCCESS) << "GPU 0 failed as well";
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
    EXPECT_TRUE(has_arrived(*hosts[number], *devices[number])) << "copy " << number;
  }
  EXPECT_EQ(counted_bytes(), kCopies * kSize) << "every ticket came to an end";

  const Outcome next = copy(Direction::kHostToDevice, *hosts[0], *devices[1], streams[0]);
  EXPECT_EQ(next, Verdict::kAccelerated);
  EXPECT_EQ(next.via >> kRelay & 1, 0u) << "it is not asked again";
  EXPECT_EQ(end_of(streams[0]), CUDA_SUCCESS);
  ASSERT_EQ(engine_->problems().size(), 1u);
  EXPECT_NE(engine_->problems()[0].find("GPU 2 has failed"), std::string::npos);
}

// More batches than the ring remembers lost ranges: their lists are given back.
TEST_F(RelayFailureTest, LaterBatchesAreCarriedToo) {
  constexpr uint64_t kBatch = 4 << 20;
  constexpr int kBatches = 24;
  HostBuffer host(driver(), kBatch);
  host.fill_random(44);
  DeviceBuffer device(driver(), kBatch);
  const CUstream stream = new_stream();
  std::vector<Segment> segments;
  for (uint64_t at = 0; at < kBatch; at += kSegment)
    segments.push_back({host.data() + at, device.at(at), kSegment});
  const auto send = [&] {
    return engine_->submit({Direction::kHostToDevice, segments, stream}).verdict;
  };
  for (int batch = 0; batch < kBatches; ++batch) ASSERT_EQ(send(), Verdict::kAccelerated);
  fail(kRelay);
  ASSERT_EQ(mended_end_of(stream), CUDA_SUCCESS);
  engine_->collect(5000);  // until every ticket has come to an end
  for (int batch = 0; batch < 20 * kBatches; ++batch) {
    ASSERT_EQ(send(), Verdict::kAccelerated) << "batch " << batch;
    if (batch % kBatches == 0) synchronize(stream);
  }
  ASSERT_EQ(end_of(stream), CUDA_SUCCESS);
  EXPECT_TRUE(has_arrived(host, device));
}

// All wait for one that the relay has a part in.
TEST_F(RelayFailureTest, EveryTicketMayBeInUse) {
  constexpr uint64_t kEach = 256 << 10;
  constexpr uint64_t kAll = kSize + (kTickets - 1) * kEach;
  HostBuffer host(driver(), kAll), other(driver(), kSize / 16);
  host.fill_random(49);
  DeviceBuffer device(driver(), kAll);
  const CUstream stream = new_stream();
  Gate gate(driver());
  gate.hold(stream);
  ASSERT_EQ(copy(Direction::kHostToDevice, host, device, stream), Verdict::kAccelerated);
  for (uint64_t at = kSize; at < kAll; at += kEach)
    ASSERT_EQ(
        engine_->submit({Direction::kHostToDevice, host.data() + at, device.at(at), kEach, stream}),
        Verdict::kAccelerated);
  ASSERT_EQ(copy(Direction::kHostToDevice, host, device, stream), Verdict::kSaturated);
  const CUstream beside = new_stream();
  gate.hold(beside);
  MUST(driver(), cuMemcpyDtoHAsync(other.data(), device.at(), other.size(), beside));
  gate.open();
  synchronize(beside);  // the first is under way
  fail(kRelay);
  ASSERT_EQ(mended_end_of(stream), CUDA_SUCCESS);
  EXPECT_TRUE(has_arrived(host, device));
}

// The driver refuses later copies that name it; the transfer came before.
TEST_F(RelayFailureTest, MemoryMayHaveBeenFreedBehindTheCopy) {
  HostBuffer host(driver(), kSize), other(driver(), kSize);
  other.fill_random(45);
  CUdeviceptr device = 0;
  MUST(driver(), cuMemAlloc(&device, kSize));
  MUST(driver(), cuMemcpyHtoD(device, other.data(), kSize));
  const CUstream stream = new_stream();
  ASSERT_EQ(engine_->submit({Direction::kDeviceToHost, host.data(), device, kSize, stream}),
            Verdict::kAccelerated);
  MUST(driver(), cuMemFreeAsync(device, stream));
  fail(kRelay);
  ASSERT_EQ(mended_end_of(stream), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(host.data(), other.data(), kSize), 0);
}

TEST_F(RelayFailureTest, TwoRelaysMayFail) {
  HostBuffer host(driver(), kSize);
  host.fill_random(46);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(copy(Direction::kHostToDevice, host, device, stream), Verdict::kAccelerated);
  fail(kRelay);
  fail(kRelay + 1);
  ASSERT_EQ(mended_end_of(stream), CUDA_SUCCESS);
  EXPECT_TRUE(has_arrived(host, device));
  EXPECT_EQ(engine_->problems().size(), 2u);
}

// The program resets what has failed, and goes on.
TEST_F(RelayFailureTest, AGpuThatHasBeenResetRelaysAgain) {
  HostBuffer host(driver(), kSize);
  host.fill_random(47);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(copy(Direction::kHostToDevice, host, device, stream), Verdict::kAccelerated);
  fail(kRelay);
  const auto before = std::chrono::steady_clock::now();
  reset(kRelay);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(3))
      << "it waited for what has failed";
  ASSERT_EQ(mended_end_of(stream), CUDA_SUCCESS);
  ASSERT_TRUE(engine_->add_context(nullptr).ok());
  const Outcome next = copy(Direction::kHostToDevice, host, device, stream);
  EXPECT_EQ(next, Verdict::kAccelerated);
  EXPECT_NE(next.via >> kRelay & 1, 0u) << "it relays no more";
  EXPECT_EQ(end_of(stream), CUDA_SUCCESS);
  EXPECT_TRUE(has_arrived(host, device));
}

// The driver refuses to open the gate, so many times.
template <int kTimes>
class RefusedTest : public RelayFailureTest {
 protected:
  std::string faults() const override {
    std::string calls;
    for (int nth = 1; nth <= kTimes; ++nth)
      calls += std::string(nth > 1 ? ", " : "") + R"({"name": "cuStreamWriteValue32_v2", "nth": )" +
               std::to_string(nth) + R"(, "error": "CUDA_ERROR_NOT_SUPPORTED"})";
    return R"({"contexts_fail_alone": true, "calls": [)" + calls + "]}";
  }
};

using RefusedForAWhileTest = RefusedTest<5>;
using RefusedForGoodTest = RefusedTest<400>;

TEST_F(RefusedForAWhileTest, EveryByteArrivesAndIsCarriedAgainOnce) {
  HostBuffer host(driver(), kSize);
  host.fill_random(48);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(copy(Direction::kHostToDevice, host, device, stream), Verdict::kAccelerated);
  fail(kRelay);
  ASSERT_EQ(mended_end_of(stream), CUDA_SUCCESS);
  EXPECT_TRUE(has_arrived(host, device));
  EXPECT_EQ(counted_bytes(), kSize);
}

// The program does not go on with bytes that never came.
TEST_F(RefusedForGoodTest, WhatCannotBeMendedIsAStickyError) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(copy(Direction::kHostToDevice, host, device, stream), Verdict::kAccelerated);
  fail(kRelay);
  EXPECT_EQ(mended_end_of(stream), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(RelayFailureTest, AFailedTargetIsTheProgramsError) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(copy(Direction::kHostToDevice, host, device, stream), Verdict::kAccelerated);
  fail(0);
  EXPECT_EQ(end_of(stream), CUDA_ERROR_LAUNCH_FAILED);
  close_engine();
}

// As drivers do: a fault ends every context of the process. The program hears it, and nothing
// hangs.
class ProcessFailureTest : public RelayFailureTest {
 protected:
  std::string faults() const override { return ""; }
};

TEST_F(ProcessFailureTest, AFailedRelayIsTheTargetsErrorToo) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(copy(Direction::kHostToDevice, host, device, stream), Verdict::kAccelerated);
  fail(kRelay);
  EXPECT_EQ(end_of(stream), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_NE(copy(Direction::kHostToDevice, host, device, stream), Verdict::kAccelerated);
  std::this_thread::sleep_for(2 * kMended);  // the watch has looked
  EXPECT_TRUE(engine_->problems().empty()) << "no relay's failure: " << engine_->problems()[0];
  close_engine();
}

// A relay whose context is destroyed while its kernel still waits for the program's stream.
TEST_F(RelayFailureTest, ARelayMayEndBeforeItsTurnHasCome) {
  HostBuffer host(driver(), kSize);
  host.fill_random(43);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  Gate gate(driver());
  gate.hold(stream);
  ASSERT_EQ(copy(Direction::kHostToDevice, host, device, stream), Verdict::kAccelerated);
  reset(kRelay);
  gate.open();
  ASSERT_EQ(end_of(stream), CUDA_SUCCESS);
  EXPECT_TRUE(has_arrived(host, device));
  EXPECT_EQ(counted_bytes(), kSize) << "its ticket came to an end";
}

}  // namespace
}  // namespace braid::multipath
