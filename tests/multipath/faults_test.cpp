// When the driver refuses a step, or a GPU has no time: nothing is lost. Faults are the emulator's
// (src/emulator/faults.h); they are set before the driver starts, so each TEST is its own process.
#include <bit>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kSize = 64 << 20;

class FaultsTest : public test::ServerTest {
 protected:
  void SetUp() override {}  // the test says which faults, then starts

  static Options by_kernels() {
    Options options = every_size();
    options.mover = MoverChoice::kKernel;
    return options;
  }
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

// By kernels: a relay GPU that is busy for a while neither delays the transfer nor loses a slice,
// and its late kernel finds nothing left.
TEST_F(FaultsTest, ABusyRelayHoldsNothingUp) {
  start(R"({"busy": [{"gpu": 3, "from_us": 100000, "to_us": 500000}]})");
  auto engine = open_engine(by_kernels());
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
  for (double at_us = 0; at_us < 600000;) {  // until the late kernel has come and gone
    for (int copy = 0; copy < 100; ++copy)
      MUST(driver(), cuMemcpyHtoDAsync(device.at(), host.data(), kSize, stream));
    MUST(driver(), cuEventRecord(end, stream));
    synchronize(stream);
    at_us = elapsed_us(begin, end);
  }
  for (const PathCount& count : engine->collect(2000)) EXPECT_NE(count.via, 3);
}

// Calls that submit makes are refused: the copy arrives all the same, by braid or natively.
// tests/faults refuses every one of them.
TEST_F(FaultsTest, ARefusedLaunchOfTheDirectPathIsTheNativeCopy) {
  start(
      R"({"calls": [{"name": "cuLaunchKernelEx", "nth": 1, "error": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}]})");
  auto engine = open_engine(by_kernels());
  Verdict verdict;
  EXPECT_TRUE(arrives(*engine, verdict));
  EXPECT_EQ(verdict, Verdict::kDriverError);
  EXPECT_TRUE(arrives(*engine, verdict));
  EXPECT_EQ(verdict, Verdict::kAccelerated);
}

TEST_F(FaultsTest, RefusedLaunchesOfRelaysAreMadeUpFor) {
  start(
      R"({"calls": [{"name": "cuLaunchKernel", "nth": 1, "error": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
                    {"name": "cuLaunchKernel", "nth": 3, "error": "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}]})");
  auto engine = open_engine(by_kernels());
  Verdict verdict;
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(arrives(*engine, verdict));
    EXPECT_EQ(verdict, Verdict::kAccelerated);
  }
  uint64_t bytes = 0;
  for (const PathCount& count : engine->collect(2000)) bytes += count.bytes;
  EXPECT_EQ(bytes, 2 * kSize) << "a transfer that never comes back keeps its counts";
}

TEST_F(FaultsTest, AWordThatIsRefusedStillOrdersTheCopy) {
  start(
      R"({"calls": [{"name": "cuStreamBatchMemOp_v2", "nth": 1, "error": "CUDA_ERROR_NOT_SUPPORTED"},
                    {"name": "cuStreamWaitValue32_v2", "nth": 3, "error": "CUDA_ERROR_NOT_SUPPORTED"},
                    {"name": "cuMemcpyDtoDAsync_v2", "nth": 5, "error": "CUDA_ERROR_NOT_SUPPORTED"},
                    {"name": "cuStreamWriteValue32_v2", "nth": 4, "error": "CUDA_ERROR_NOT_SUPPORTED"}]})");
  auto engine = open_engine();
  Verdict verdict;
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(arrives(*engine, verdict)) << round;
  EXPECT_EQ(verdict, Verdict::kAccelerated);
}

TEST_F(FaultsTest, ABeginningThatIsRefusedIsTheNativeCopy) {
  start(
      R"({"calls": [{"name": "cuStreamWriteValue32_v2", "nth": 1, "error": "CUDA_ERROR_OUT_OF_MEMORY"}]})");
  auto engine = open_engine();
  Verdict verdict;
  EXPECT_TRUE(arrives(*engine, verdict));
  EXPECT_EQ(verdict, Verdict::kDriverError);
}

// A GPU that cannot be prepared is named, and done without.
TEST_F(FaultsTest, ARelayThatCannotBeOpenedIsDoneWithout) {
  start(
      R"({"calls": [{"name": "cuCtxCreate_v2", "nth": 3, "error": "CUDA_ERROR_NO_BINARY_FOR_GPU"}]})");
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

// The driver as a thread has it that has no context of the program's, as braid's own. One call of
// cuMemHostRegister is refused.
class Registrations {
 public:
  Registrations(const cuda::Driver& real, int refused_nth) : driver_(real) {
    self_ = this;
    refused_nth_ = refused_nth;
    register_ = real.cuMemHostRegister;
    unregister_ = real.cuMemHostUnregister;
    driver_.cuMemHostRegister = [](void* memory, size_t size_bytes, unsigned flags) {
      return self_->add(memory, size_bytes, flags);
    };
    driver_.cuMemHostUnregister = [](void* memory) { return self_->remove(memory); };
  }
  ~Registrations() { self_ = nullptr; }
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  const cuda::Driver& driver() const { return driver_; }
  bool was_refused() const { return calls_ >= refused_nth_; }
  size_t left() const { return made_.size(); }
  int strange() const { return strange_; }  ///< given back in no context of braid's

 private:
  CUresult add(void* memory, size_t size_bytes, unsigned flags) {
    if (++calls_ == refused_nth_) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = register_(memory, size_bytes, flags);
    if (result == CUDA_SUCCESS) made_.insert(memory);
    return result;
  }
  CUresult remove(void* memory) {
    CUcontext current = nullptr;
    driver_.cuCtxGetCurrent(&current);
    if (current == nullptr) ++strange_;
    const CUresult result = unregister_(memory);
    if (result == CUDA_SUCCESS) made_.erase(memory);
    return result;
  }

  static inline Registrations* self_ = nullptr;
  cuda::Driver driver_;
  decltype(cuda::Driver::cuMemHostRegister) register_;
  decltype(cuda::Driver::cuMemHostUnregister) unregister_;
  int refused_nth_, calls_ = 0, strange_ = 0;
  std::set<void*> made_;
};

// A target that is half open is none, and gives back what it has in the context where it lies.
TEST_F(FaultsTest, WhereverRegisteringFailsNothingStaysRegistered) {
  start("{}");
  Options options = every_size();
  options.relays.kind = RelayChoice::Kind::kList;
  options.relays.gpus = {1};
  bool was_refused = true;
  for (int nth = 1; was_refused; ++nth) {
    std::thread([&] {
      Registrations registrations(driver(), nth);
      (void)Engine::open(registrations.driver(), options);  // and closed
      was_refused = registrations.was_refused();
      EXPECT_EQ(registrations.left(), 0u) << nth;
      EXPECT_EQ(registrations.strange(), 0) << nth;
    }).join();
    ASSERT_LT(nth, 1000);
  }
}

TEST_F(FaultsTest, AnEngineWithoutAnyRelaySaysWhy) {
  std::string calls;
  for (int nth = 1; nth <= 8; ++nth)
    calls += std::string(calls.empty() ? "" : ", ") + R"({"name": "cuCtxCreate_v2", "nth": )" +
             std::to_string(nth) + R"(, "error": "CUDA_ERROR_NO_BINARY_FOR_GPU"})";
  start("{\"calls\": [" + calls + "]}");
  const auto engine = Engine::open(driver(), every_size());
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("CUDA_ERROR_NO_BINARY_FOR_GPU"), std::string::npos);
}

}  // namespace
}  // namespace braid::multipath
