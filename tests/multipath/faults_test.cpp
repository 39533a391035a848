// When the driver refuses a step, or a GPU has no time: nothing is lost. Faults are the emulator's
// (src/emulator/faults.h); they are set before the driver starts, so each TEST is its own process.
#include <bit>
#include <cstdlib>
#include <cstring>

#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kSize = 64 << 20;

class FaultsTest : public test::ServerTest {
 protected:
  void SetUp() override {}  // the test says which faults, then starts

  void start(const std::string& faults) {
    setenv("BRAID_FAULTS", faults.c_str(), 1);
    ServerTest::SetUp();
  }

  // H2D through braid, or natively when braid declines; true when every byte arrived.
  bool arrives(Engine& engine, Verdict& verdict) {
    HostBuffer host(driver(), kSize), landing(driver(), kSize);
    host.fill_random(21);
    DeviceBuffer device(driver(), kSize);
    const CUstream stream = new_stream();
    verdict = engine.submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream});
    if (verdict != Verdict::kAccelerated)
      MUST(driver(), cuMemcpyHtoDAsync(device.at(), host.data(), kSize, stream));
    MUST(driver(), cuMemcpyDtoHAsync(landing.data(), device.at(), kSize, stream));
    synchronize(stream);
    return std::memcmp(host.data(), landing.data(), kSize) == 0;
  }
};

// A relay GPU that is busy for a second neither delays the transfer nor loses a slice, and its late
// kernel finds nothing left.
TEST_F(FaultsTest, ABusyRelayHoldsNothingUp) {
  start(R"({"busy": [{"gpu": 3, "from_us": 100000, "to_us": 2000000}]})");
  auto engine = open_engine();
  HostBuffer host(driver(), kSize);
  host.fill_random(22);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  const CUevent begin = new_event(), end = new_event();
  // Let virtual time reach the busy spell.
  MUST(driver(), cuEventRecord(begin, stream));
  for (double at_us = 0; at_us < 150000;) {
    MUST(driver(), cuMemcpyHtoDAsync(device.at(), host.data(), kSize, stream));
    MUST(driver(), cuEventRecord(end, stream));
    synchronize(stream);
    at_us = elapsed_us(begin, end);
  }
  MUST(driver(), cuEventRecord(begin, stream));
  ASSERT_EQ(engine->submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream}),
            Verdict::kAccelerated);
  MUST(driver(), cuEventRecord(end, stream));
  synchronize(stream);
  EXPECT_LT(elapsed_us(begin, end), 1000) << "64 MB over the other seven links";
  HostBuffer landing(driver(), kSize);
  MUST(driver(), cuMemcpyDtoH(landing.data(), device.at(), kSize));
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
  use_gpu(3);
  MUST(driver(), cuCtxSynchronize());  // the late kernel comes, sees, and leaves
  for (const PathCount& count : engine->collect(2000)) EXPECT_NE(count.via, 3);
}

// Every call that submit makes is refused once: the copy arrives all the same, by braid or
// natively.
TEST_F(FaultsTest, ARefusedLaunchOfTheDirectPathIsTheNativeCopy) {
  // 16 launches warm up each of 8 targets; the next one is the first of the transfer.
  start(
      R"({"calls": [{"name": "cuLaunchKernel", "nth": 129, "error": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}]})");
  auto engine = open_engine();
  Verdict verdict;
  EXPECT_TRUE(arrives(*engine, verdict));
  EXPECT_EQ(verdict, Verdict::kDriverError);
  EXPECT_TRUE(arrives(*engine, verdict));
  EXPECT_EQ(verdict, Verdict::kAccelerated);
}

TEST_F(FaultsTest, ARefusedLaunchOfARelayIsDoneWithout) {
  start(
      R"({"calls": [{"name": "cuLaunchKernel", "nth": 131, "error": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}]})");
  auto engine = open_engine();
  Verdict verdict;
  EXPECT_TRUE(arrives(*engine, verdict));
  EXPECT_EQ(verdict, Verdict::kAccelerated);
  EXPECT_TRUE(arrives(*engine, verdict));
  EXPECT_EQ(verdict, Verdict::kAccelerated);
  uint64_t bytes = 0;
  for (const PathCount& count : engine->collect(2000)) bytes += count.bytes;
  EXPECT_EQ(bytes, 2 * kSize) << "a ticket that never comes back keeps its counts";
}

// Between the two launches that are refused, the first one is made up for on the target.
TEST_F(FaultsTest, RelaysThatRefuseInOneTransferAreAllDropped) {
  start(
      R"({"calls": [{"name": "cuLaunchKernel", "nth": 130, "error": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
                    {"name": "cuLaunchKernel", "nth": 132, "error": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}]})");
  auto engine = open_engine();
  HostBuffer host(driver(), kSize), landing(driver(), kSize);
  host.fill_random(24);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  const auto send = [&] {
    return engine->submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream});
  };
  const Outcome first = send();
  ASSERT_EQ(first, Verdict::kAccelerated);
  MUST(driver(), cuMemcpyDtoHAsync(landing.data(), device.at(), kSize, stream));
  const Outcome second = send();
  ASSERT_EQ(second, Verdict::kAccelerated);
  synchronize(stream);
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
  EXPECT_EQ(std::popcount(second.via), gpus() - 2);
  EXPECT_EQ(first.via, second.via) << "who was refused carries nothing";
  uint64_t bytes = 0;
  for (const PathCount& count : engine->collect(2000)) {
    EXPECT_NE(second.via >> count.via & 1, 0u) << "GPU " << count.via;
    bytes += count.bytes;
  }
  EXPECT_EQ(bytes, 2 * kSize) << "a ticket that never comes back keeps its counts";
}

TEST_F(FaultsTest, ARefusedGateStillHoldsTheStream) {
  start(
      R"({"calls": [{"name": "cuStreamWaitValue32_v2", "nth": 17, "error": "CUDA_ERROR_NOT_SUPPORTED"}]})");
  auto engine = open_engine();
  Verdict verdict;
  EXPECT_TRUE(arrives(*engine, verdict));
  EXPECT_EQ(verdict, Verdict::kAccelerated);
}

TEST_F(FaultsTest, ARefusedEventIsTheNativeCopy) {
  start(
      R"({"calls": [{"name": "cuEventRecord", "nth": 17, "error": "CUDA_ERROR_OUT_OF_MEMORY"}]})");
  auto engine = open_engine();
  Verdict verdict;
  EXPECT_TRUE(arrives(*engine, verdict));
  EXPECT_EQ(verdict, Verdict::kDriverError);
}

// A GPU that cannot be prepared is named, and done without.
TEST_F(FaultsTest, ARelayThatCannotBeOpenedIsDoneWithout) {
  start(
      R"({"calls": [{"name": "cuModuleLoadData", "nth": 5, "error": "CUDA_ERROR_NO_BINARY_FOR_GPU"}]})");
  auto engine = open_engine();
  ASSERT_EQ(engine->problems().size(), 1u);
  EXPECT_NE(engine->problems()[0].find("GPU 2"), std::string::npos) << engine->problems()[0];
  EXPECT_NE(engine->problems()[0].find("CUDA_ERROR_NO_BINARY_FOR_GPU"), std::string::npos);
  Verdict verdict;
  EXPECT_TRUE(arrives(*engine, verdict));
  EXPECT_EQ(verdict, Verdict::kAccelerated);
  const auto counts = engine->collect(2000);
  EXPECT_EQ(counts.size(), 7u);
  for (const PathCount& count : counts) EXPECT_NE(count.via, 2);
  EXPECT_TRUE(engine->add_context(context(0)).ok()) << "and is not tried again";
}

TEST_F(FaultsTest, AnEngineWithoutAnyRelaySaysWhy) {
  std::string calls;
  for (int nth = 1; nth <= 8; ++nth)
    calls += std::string(calls.empty() ? "" : ", ") + R"({"name": "cuModuleLoadData", "nth": )" +
             std::to_string(nth) + R"(, "error": "CUDA_ERROR_NO_BINARY_FOR_GPU"})";
  start("{\"calls\": [" + calls + "]}");
  const auto engine = Engine::open(driver(), every_size());
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("CUDA_ERROR_NO_BINARY_FOR_GPU"), std::string::npos);
}

// A relay that has begun to refuse launches is not asked again.
TEST_F(FaultsTest, ARelayThatKeepsRefusingIsDropped) {
  std::string calls;
  for (int nth = 130; nth < 5000; nth += 8)
    calls += std::string(calls.empty() ? "" : ", ") + R"({"name": "cuLaunchKernel", "nth": )" +
             std::to_string(nth) + R"(, "error": "CUDA_ERROR_ILLEGAL_ADDRESS"})";
  start("{\"calls\": [" + calls + "]}");
  auto engine = open_engine();
  HostBuffer host(driver(), 1 << 20);
  DeviceBuffer device(driver(), 1 << 20);
  const CUstream stream = new_stream();
  int carried = 0;
  for (int copy = 0; copy < 400; ++copy) {
    if (engine->submit({Direction::kHostToDevice, host.data(), device.at(), 1 << 20, stream}) ==
        Verdict::kAccelerated)
      ++carried;
    synchronize(stream);
    engine->collect(1000);
  }
  EXPECT_GT(carried, 2) << "until the last relay has refused, or for good";
  EXPECT_FALSE(engine->collect(1000).empty()) << "tickets come back, and with them the counts";
}

}  // namespace
}  // namespace braid::multipath
