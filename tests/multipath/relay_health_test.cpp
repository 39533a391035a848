// Relays that refuse work rest and come back; relays on a GPU that is short of memory give theirs
// back.
#include "multipath/relay_health.h"

#include <cstring>
#include <tuple>

#include "support/gate.h"
#include "support/leaping_clock.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::Gate;
using test::HostBuffer;

constexpr uint64_t kSize = 32 << 20;
constexpr uint64_t kSecondNs = 1'000'000'000;

// What the driver does for braid in these tests.
bool refuses_relays = false;
decltype(&cuMemcpyDtoDAsync) real_copy = nullptr;

CUresult copy_or_refuse(CUdeviceptr to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  if (refuses_relays) return CUDA_ERROR_INVALID_VALUE;
  return real_copy(to, from, size_bytes, stream);
}

// As where the relay's GPU alone has failed: every call on a stream of its context is refused.
bool is_relay_dead = false;
CUstream programs_stream = nullptr;
cuda::Driver real;

bool is_refused(CUstream stream) { return is_relay_dead && stream != programs_stream; }

template <auto Call, typename... Arguments>
void may_refuse(cuda::Driver& altered, CUresult (*)(Arguments...)) {
  altered.*Call = [](Arguments... arguments) {
    const auto stream = std::get<CUstream>(std::tuple(arguments...));
    return is_refused(stream) ? CUDA_ERROR_ECC_UNCORRECTABLE : (real.*Call)(arguments...);
  };
}

void let_relays_die(cuda::Driver& altered) {
  real = altered;
  may_refuse<&cuda::Driver::cuStreamWaitValue32>(altered, altered.cuStreamWaitValue32);
  may_refuse<&cuda::Driver::cuStreamWriteValue32>(altered, altered.cuStreamWriteValue32);
  may_refuse<&cuda::Driver::cuMemcpyHtoDAsync>(altered, altered.cuMemcpyHtoDAsync);
  may_refuse<&cuda::Driver::cuMemcpyDtoDAsync>(altered, altered.cuMemcpyDtoDAsync);
  may_refuse<&cuda::Driver::cuEventRecord>(altered, altered.cuEventRecord);
}

std::vector<std::string> said;
void say(const char* message) { said.emplace_back(message); }

class RelayHealthTest : public test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    refuses_relays = false;
    said.clear();
    altered_ = driver();
    real_copy = altered_.cuMemcpyDtoDAsync;
    altered_.cuMemcpyDtoDAsync = copy_or_refuse;
    is_relay_dead = false;
    let_relays_die(altered_);
    clock_ = std::make_unique<test::LeapingClock>(*driver().clock);
    altered_.clock = clock_.get();
    Options options = every_size();
    options.relays = {RelayChoice::Kind::kList, {1}};
    auto prepared = Engine::create(altered_, options, say);
    ASSERT_TRUE(prepared.ok()) << prepared.status().message();
    engine_ = std::move(prepared).value();
    ASSERT_TRUE(engine_->add_context(context(0)).ok());
    engine_->request_relays(kEveryGpu);
    while (engine_->open_next_relay().value()) continue;
    engine_->open_targets();
    host_ = std::make_unique<HostBuffer>(driver(), kSize);
    host_->fill_random(9);
    device_ = std::make_unique<DeviceBuffer>(driver(), kSize);
    programs_stream = stream_ = new_stream();
  }

  Outcome copy() {
    MUST(driver(), cuMemsetD8(device_->at(), 0, kSize));
    const Outcome outcome =
        engine_->submit({Direction::kHostToDevice, host_->data(), device_->at(), kSize, stream_});
    if (outcome != Verdict::kAccelerated) return outcome;
    synchronize(stream_);
    std::vector<uint8_t> seen(kSize);
    MUST(driver(), cuMemcpyDtoH(seen.data(), device_->at(), kSize));
    EXPECT_EQ(std::memcmp(seen.data(), host_->data(), kSize), 0);
    return outcome;
  }
  // The copy's bytes arrive, whichever way they go: whether the relay carried some.
  bool is_relayed() {
    const Outcome outcome = copy();
    return outcome == Verdict::kAccelerated && (outcome.via & 0b10) != 0;
  }
  RelayCount count() {
    RelayCount relay;
    EXPECT_EQ(engine_->count_relays({&relay, 1}), 1u);
    return relay;
  }
  CUdevice relay_device() {
    CUdevice device = 0;
    MUST(driver(), cuDeviceGet(&device, 1));
    return device;
  }
  size_t free_on_relay() {
    use_gpu(1);
    size_t free_bytes = 0, total_bytes = 0;
    MUST(driver(), cuMemGetInfo(&free_bytes, &total_bytes));
    use_gpu(0);
    return free_bytes;
  }

  cuda::Driver altered_;
  std::unique_ptr<test::LeapingClock> clock_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HostBuffer> host_;
  std::unique_ptr<DeviceBuffer> device_;
  CUstream stream_ = nullptr;
};

TEST_F(RelayHealthTest, ARelayThatRefusesRestsAndComesBack) {
  ASSERT_TRUE(is_relayed());
  EXPECT_EQ(count().state, RelayState::kOpen);
  refuses_relays = true;
  EXPECT_FALSE(is_relayed());
  EXPECT_EQ(count().state, RelayState::kResting);
  EXPECT_EQ(count().refusals, 1u);
  refuses_relays = false;
  EXPECT_FALSE(is_relayed()) << "it rests";
  EXPECT_EQ(count().refusals, 1u);
  clock_->leapt_ns += 11 * kSecondNs;
  EXPECT_TRUE(is_relayed());
  EXPECT_EQ(count().state, RelayState::kOpen);
}

// What the relay does not take goes over the direct path, and the program sees no error.
TEST_F(RelayHealthTest, ARelayThatRefusesEveryCallHarmsNoCopy) {
  ASSERT_TRUE(is_relayed());
  is_relay_dead = true;
  for (int times = 0; times < 3; ++times) {
    EXPECT_STREQ(verdict_name(copy().verdict), "accelerated")
        << "the relay has an error, not the copy";
    EXPECT_EQ(count().state, RelayState::kResting);
    clock_->leapt_ns += 11 * kSecondNs;
  }
  is_relay_dead = false;
  EXPECT_TRUE(is_relayed());
}

TEST_F(RelayHealthTest, TheFirstRefusalIsSaidAndAllAreCounted) {
  refuses_relays = true;
  for (int times = 0; times < 3; ++times) {
    EXPECT_FALSE(is_relayed());
    clock_->leapt_ns += 11 * kSecondNs;
  }
  EXPECT_EQ(count().refusals, 3u);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("GPU 1"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("CUDA_ERROR_INVALID_VALUE"), std::string::npos) << said[0];
  EXPECT_EQ(engine_->problems(), said);
}

TEST_F(RelayHealthTest, BuffersAreGivenBackAndAllocatedAgain) {
  ASSERT_TRUE(is_relayed());
  const size_t before = free_on_relay();
  const uint64_t given = engine_->release_buffers(relay_device());
  EXPECT_GE(given, uint64_t{32} << 20);
  EXPECT_EQ(free_on_relay(), before + given);
  EXPECT_EQ(engine_->release_buffers(relay_device()), 0u) << "there is nothing left";
  EXPECT_EQ(count().state, RelayState::kWithoutBuffers);
  EXPECT_FALSE(is_relayed());
  clock_->leapt_ns += kSecondNs;
  EXPECT_TRUE(engine_->restore_buffers());
  EXPECT_EQ(free_on_relay(), before);
  EXPECT_TRUE(is_relayed());
}

// The program's own call is still to come.
TEST_F(RelayHealthTest, BuffersStayGivenBackForASecond) {
  const uint64_t given = engine_->release_buffers(relay_device());
  ASSERT_NE(given, 0u);
  const size_t free_bytes = free_on_relay();
  EXPECT_FALSE(engine_->restore_buffers());
  clock_->leapt_ns += kSecondNs / 2;
  EXPECT_FALSE(engine_->restore_buffers());
  EXPECT_EQ(free_on_relay(), free_bytes);
  clock_->leapt_ns += kSecondNs / 2;
  EXPECT_TRUE(engine_->restore_buffers());
  EXPECT_EQ(free_on_relay(), free_bytes - given);
}

TEST_F(RelayHealthTest, BuffersStayGivenBackWhileTheGpuIsShortOfMemory) {
  ASSERT_NE(engine_->release_buffers(relay_device()), 0u);
  clock_->leapt_ns += kSecondNs;
  const size_t most = free_on_relay() - (size_t{1} << 30);
  use_gpu(1);
  CUdeviceptr hog = 0;
  MUST(driver(), cuMemAlloc(&hog, most));
  use_gpu(0);
  EXPECT_FALSE(engine_->restore_buffers());
  EXPECT_EQ(count().state, RelayState::kWithoutBuffers);
  use_gpu(1);
  MUST(driver(), cuMemFree(hog));
  use_gpu(0);
  EXPECT_TRUE(engine_->restore_buffers());
}

// What passes through the buffers is under way for as long as the program's stream is held.
TEST_F(RelayHealthTest, BuffersInUseAreNotGivenBack) {
  Gate gate(driver());
  gate.hold(stream_);
  ASSERT_EQ(
      engine_->submit({Direction::kHostToDevice, host_->data(), device_->at(), kSize, stream_}),
      Verdict::kAccelerated);
  EXPECT_EQ(engine_->release_buffers(relay_device()), 0u);
  gate.open();
  synchronize(stream_);
  EXPECT_NE(engine_->release_buffers(relay_device()), 0u);
}

// To free memory would spoil what this thread, or another, records.
TEST_F(RelayHealthTest, AGraphThatIsBeingRecordedIsNotSpoiled) {
  const auto begin = reinterpret_cast<CUresult (*)(CUstream, CUstreamCaptureMode)>(
      symbol("cuStreamBeginCapture_v2"));
  const auto end = reinterpret_cast<CUresult (*)(CUstream, CUgraph*)>(symbol("cuStreamEndCapture"));
  ASSERT_EQ(begin(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_NE(engine_->release_buffers(relay_device()), 0u);
  clock_->leapt_ns += kSecondNs;
  EXPECT_TRUE(engine_->restore_buffers());
  CUgraph graph = nullptr;
  EXPECT_EQ(end(stream_, &graph), CUDA_SUCCESS);
}

// Kernels need no buffers.
TEST_F(RelayHealthTest, ARelayWithoutBuffersCarriesBatches) {
  ASSERT_NE(engine_->release_buffers(relay_device()), 0u);
  const Segment halves[] = {{host_->data() + kSize / 2, device_->at(kSize / 2), kSize / 2},
                            {host_->data(), device_->at(), kSize / 2}};
  const Outcome outcome = engine_->submit(Batch{Direction::kHostToDevice, halves, stream_});
  synchronize(stream_);
  EXPECT_EQ(outcome, Verdict::kAccelerated);
  EXPECT_NE(outcome.via & 0b10, 0u);
}

}  // namespace
}  // namespace braid::multipath
