// A gate never stays closed: whatever call fails, every byte arrives, or the program sees a sticky
// CUDA error. Faults are the emulator's (src/emulator/faults.h); each TEST is its own process.
#include <cstdlib>

#include "multipath/copy_engine/fixture.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kSize = 64 << 20;

class CopyEngineFaultsTest : public CopyEngineTest {
 protected:
  void SetUp() override {}  // the test says which faults, then starts

  void start(const std::string& faults) {
    setenv("BRAID_FAULTS", faults.c_str(), 1);
    ServerTest::SetUp();
  }

  static std::string call(const char* name, int nth, const char* error) {
    return std::string(R"({"name": ")") + name + R"(", "nth": )" + std::to_string(nth) +
           R"(, "error": ")" + error + R"("})";
  }
  static std::string calls(const char* name, int from, int to, const char* error) {
    std::string list;
    for (int nth = from; nth <= to; ++nth)
      list += (nth > from ? ", " : "") + call(name, nth, error);
    return "{\"calls\": [" + list + "]}";
  }

  // There and back; true when every byte arrived.
  bool round_trip(Verdict& verdict) {
    HostBuffer host(driver(), kSize), landing(driver(), kSize);
    host.fill_random(21);
    DeviceBuffer device(driver(), kSize);
    const CUstream stream = new_stream();
    verdict = submit(Direction::kHostToDevice, host, device, kSize, stream);
    if (verdict == Verdict::kAccelerated)
      verdict = submit(Direction::kDeviceToHost, landing, device, kSize, stream);
    synchronize(stream);
    return verdict == Verdict::kAccelerated && std::memcmp(host.data(), landing.data(), kSize) == 0;
  }
};

// The copies of a transfer are some dozens; each is refused once, and then all from one on for a
// while, so that relays drop out one after the other.
TEST_F(CopyEngineFaultsTest, RefusedHostCopiesGoOverTheDirectPath) {
  start(calls("cuMemcpyHtoDAsync_v2", 3, 5, "CUDA_ERROR_OUT_OF_MEMORY"));
  open();
  Verdict verdict;
  EXPECT_TRUE(round_trip(verdict)) << verdict_name(verdict);
  EXPECT_TRUE(round_trip(verdict)) << verdict_name(verdict);
  EXPECT_TRUE(mover->drain(2000));
  EXPECT_GT(relayed_bytes(), 0u) << "other relays still help";
}

TEST_F(CopyEngineFaultsTest, RefusedPeerCopiesGoOverTheDirectPath) {
  start(calls("cuMemcpyPeerAsync", 1, 400, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"));
  open();
  Verdict verdict;
  EXPECT_TRUE(round_trip(verdict)) << verdict_name(verdict);
  EXPECT_TRUE(mover->drain(2000));
  EXPECT_EQ(relayed_bytes(), 0u);
}

TEST_F(CopyEngineFaultsTest, RefusedCopiesBackGoOverTheDirectPath) {
  start(calls("cuMemcpyDtoHAsync_v2", 4, 9, "CUDA_ERROR_OUT_OF_MEMORY"));
  open();
  Verdict verdict;
  EXPECT_TRUE(round_trip(verdict)) << verdict_name(verdict);
}

// What was a batch comes back as single copies: a driver may have the call and not like it.
TEST_F(CopyEngineFaultsTest, RefusedBatchesGoOneByOne) {
  start(calls("cuMemcpyBatchAsync", 1, 400, "CUDA_ERROR_NOT_SUPPORTED"));
  open();
  HostBuffer host(driver(), kSize), landing(driver(), kSize);
  host.fill_random(22);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  constexpr uint64_t kSegment = 128 << 10;
  std::vector<Segment> up, down;
  for (uint64_t at = 0; at < kSize; at += kSegment) {
    const uint64_t place = kSize - kSegment - at;
    up.push_back({host.data() + at, device.at(place), kSegment});
    down.push_back({landing.data() + at, device.at(place), kSegment});
  }
  ASSERT_EQ(submit({Direction::kHostToDevice, up, stream}), Verdict::kAccelerated);
  ASSERT_EQ(submit({Direction::kDeviceToHost, down, stream}), Verdict::kAccelerated);
  synchronize(stream);
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
}

TEST_F(CopyEngineFaultsTest, AnUnwrittenWordIsMadeUpForByAsking) {
  start(calls("cuStreamWriteValue32_v2", 2, 40, "CUDA_ERROR_NOT_SUPPORTED"));
  open();
  Verdict verdict;
  EXPECT_TRUE(round_trip(verdict) || verdict == Verdict::kDriverError) << verdict_name(verdict);
  EXPECT_TRUE(round_trip(verdict)) << verdict_name(verdict);
}

TEST_F(CopyEngineFaultsTest, AStartThatCannotBeAnnouncedIsTheNativeCopy) {
  start(calls("cuStreamWriteValue32_v2", 1, 1, "CUDA_ERROR_NOT_SUPPORTED"));
  open();
  Verdict verdict;
  EXPECT_FALSE(round_trip(verdict));
  EXPECT_EQ(verdict, Verdict::kDriverError);
  EXPECT_TRUE(round_trip(verdict)) << verdict_name(verdict);
}

TEST_F(CopyEngineFaultsTest, WithoutStreamWaitsAKernelHoldsTheGate) {
  start(calls("cuStreamWaitValue32_v2", 1, 2, "CUDA_ERROR_NOT_SUPPORTED"));
  open();
  Verdict verdict;
  EXPECT_TRUE(round_trip(verdict)) << verdict_name(verdict);
}

TEST_F(CopyEngineFaultsTest, WithoutEitherGateTheCopyIsNative) {
  // One launch warms each of 8 stations up.
  start("{\"calls\": [" + call("cuStreamWaitValue32_v2", 1, "CUDA_ERROR_NOT_SUPPORTED") + ", " +
        call("cuLaunchKernel", 9, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES") + "]}");
  open();
  Verdict verdict;
  EXPECT_FALSE(round_trip(verdict));
  EXPECT_EQ(verdict, Verdict::kDriverError);
  EXPECT_TRUE(round_trip(verdict)) << "a word that may still be written is not used again";
}

// When neither relays nor the direct path work, the program is not left waiting, and is told.
TEST_F(CopyEngineFaultsTest, ADeadDirectPathEndsInAStickyError) {
  start(calls("cuMemcpyHtoDAsync_v2", 1, 2000, "CUDA_ERROR_UNKNOWN"));
  open();
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(submit(Direction::kHostToDevice, host, device, kSize, stream), Verdict::kAccelerated);
  EXPECT_EQ(driver().cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(driver().cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED) << "and it stays";
  EXPECT_TRUE(mover->drain(2000));
}

// A relay's link stands still: what has not been sent on goes direct at the deadline.
TEST_F(CopyEngineFaultsTest, ARelayThatStallsIsDoneWithoutAtTheDeadline) {
  start(R"({"links": [{"ends": ["switch1", "gpu3"], "factor": 1e-6, "from_us": 0}]})");
  Options options = every_size();
  options.deadline_ms = 50;
  open({}, options);
  HostBuffer host(driver(), kSize), landing(driver(), kSize);
  host.fill_random(23);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  const CUevent begin = new_event(), end = new_event();
  MUST(driver(), cuEventRecord(begin, stream));
  ASSERT_EQ(submit(Direction::kHostToDevice, host, device, kSize, stream), Verdict::kAccelerated);
  MUST(driver(), cuEventRecord(end, stream));
  synchronize(stream);
  EXPECT_GT(elapsed_us(begin, end), 50'000);
  EXPECT_LT(elapsed_us(begin, end), 60'000);
  MUST(driver(), cuMemcpyDtoH(landing.data(), device.at(), kSize));
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
  MUST(driver(), cuEventRecord(begin, stream));
  ASSERT_EQ(submit(Direction::kHostToDevice, host, device, kSize, stream), Verdict::kAccelerated);
  MUST(driver(), cuEventRecord(end, stream));
  synchronize(stream);
  EXPECT_LT(elapsed_us(begin, end), 2'000) << "the next transfer does not ask it again";
}

// ---- Links that stand still, for a while or for good

class CopyEngineStallTest : public CopyEngineFaultsTest {
 protected:
  static constexpr double kDeadlineUs = 50e3;

  // Links by their ends, from the beginning on; `for_us` 0: for good.
  void start_and_stall(const std::string& ends, double for_us) {
    const std::string until = for_us == 0 ? "" : R"(, "to_us": )" + std::to_string(for_us);
    start(R"({"links": [{"ends": [)" + ends + R"(], "factor": 1e-6, "from_us": 0)" + until + "}]}");
    Options options = every_size();
    options.deadline_ms = static_cast<unsigned>(kDeadlineUs / 1e3);
    host = std::make_unique<HostBuffer>(driver(), kSize);
    landing = std::make_unique<HostBuffer>(driver(), kSize);
    device = std::make_unique<DeviceBuffer>(driver(), kSize);
    stream = new_stream();
    // Before anything is enqueued: virtual time goes on while the driver hears nothing for long.
    host->fill_random(24);
    open({}, options);
  }

  // What the program's stream says once its gate has opened; by the clock that the deadline is of.
  CUresult copy(Direction direction, HostBuffer& end, double& took_us) {
    const uint64_t before_ns = driver().clock->now_ns();
    EXPECT_EQ(submit(direction, end, *device, kSize, stream), Verdict::kAccelerated);
    const CUresult result = driver().cuStreamSynchronize(stream);
    took_us = static_cast<double>(driver().clock->now_ns() - before_ns) / 1e3;
    return result;
  }

  std::unique_ptr<HostBuffer> host, landing;
  std::unique_ptr<DeviceBuffer> device;
  CUstream stream = nullptr;
};

constexpr double kForGood = 0;

// The target's own PCIe link. What has been given to it may still be written, so that it is waited
// for, longer than for a relay: natively the program would wait for it too.
TEST_F(CopyEngineStallTest, ADirectPathThatStandsStillEndsInAStickyError) {
  start_and_stall(R"("switch0", "gpu0")", kForGood);
  double took_us = 0;
  EXPECT_EQ(copy(Direction::kHostToDevice, *host, took_us), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_GT(took_us, 2 * kDeadlineUs) << "more patience than with a relay";
  EXPECT_LT(took_us, 10 * kDeadlineUs);
  EXPECT_EQ(driver().cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED) << "and it stays";
  EXPECT_TRUE(mover->drain(2000));
}

TEST_F(CopyEngineStallTest, ADirectPathThatGoesOnInTimeOnlyTakesLonger) {
  start_and_stall(R"("switch0", "gpu0")", 3 * kDeadlineUs);
  double took_us = 0;
  EXPECT_EQ(copy(Direction::kHostToDevice, *host, took_us), CUDA_SUCCESS);
  EXPECT_GT(took_us, kDeadlineUs);
  EXPECT_EQ(copy(Direction::kDeviceToHost, *landing, took_us), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(host->data(), landing->data(), kSize), 0);
}

// To the device, a relay's NVLink is the last hop: its slices may still be written.
TEST_F(CopyEngineStallTest, ALastHopThatStandsStillEndsInAStickyError) {
  start_and_stall(R"("gpu3", "nvswitch0")", kForGood);
  double took_us = 0;
  EXPECT_EQ(copy(Direction::kHostToDevice, *host, took_us), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_LT(took_us, 10 * kDeadlineUs);
  EXPECT_TRUE(mover->drain(2000));
}

TEST_F(CopyEngineStallTest, ALastHopThatGoesOnInTimeDeliversItsSlicesAndTheRestGoesDirect) {
  start_and_stall(R"("gpu3", "nvswitch0")", 3 * kDeadlineUs);
  double took_us = 0;
  EXPECT_EQ(copy(Direction::kHostToDevice, *host, took_us), CUDA_SUCCESS);
  MUST(driver(), cuMemcpyDtoH(landing->data(), device->at(), kSize));
  EXPECT_EQ(std::memcmp(host->data(), landing->data(), kSize), 0);
  EXPECT_TRUE(mover->drain(2000));
  const auto through_3 = [this] {
    uint64_t slices = 0;
    for (const PathCount& count : counts())
      if (count.via == 3) slices += count.slices;
    return slices;
  };
  const uint64_t before = through_3();
  EXPECT_GT(before, 0u);
  EXPECT_EQ(copy(Direction::kHostToDevice, *host, took_us), CUDA_SUCCESS);
  EXPECT_TRUE(mover->drain(2000));
  EXPECT_EQ(through_3(), before) << "it is not asked again";
}

// To the host it is the first hop: nothing has been written, and the slices go direct.
TEST_F(CopyEngineStallTest, AFirstHopThatStandsStillGoesDirectAtTheDeadline) {
  start_and_stall(R"("gpu3", "nvswitch0")", kForGood);
  MUST(driver(), cuMemcpyHtoD(device->at(), host->data(), kSize));
  double took_us = 0;
  EXPECT_EQ(copy(Direction::kDeviceToHost, *landing, took_us), CUDA_SUCCESS);
  EXPECT_GT(took_us, kDeadlineUs);
  EXPECT_LT(took_us, 2 * kDeadlineUs);
  EXPECT_EQ(std::memcmp(host->data(), landing->data(), kSize), 0);
}

}  // namespace
}  // namespace braid::multipath
