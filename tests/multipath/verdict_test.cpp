// What braid leaves to the native copy, and the reason it gives.
#include <cstring>

#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kSize = 8 << 20;

class VerdictTest : public test::ServerTest {
 protected:
  static std::string submit(Engine& engine, const Batch& transfer) {
    return verdict_name(engine.submit(transfer));
  }
};

TEST_F(VerdictTest, SmallCopiesStayNative) {
  Options options;
  options.threshold_bytes = kSize;
  auto engine = open_engine(options);
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  EXPECT_EQ(
      submit(*engine, {Direction::kHostToDevice, host.data(), device.at(), kSize - 1, stream}),
      "below_threshold");
  EXPECT_EQ(submit(*engine, {Direction::kHostToDevice, host.data(), device.at(), kSize, stream}),
            "accelerated");
  synchronize(stream);
}

TEST_F(VerdictTest, PageableMemoryStaysNative) {
  auto engine = open_engine();
  std::vector<uint8_t> pageable(kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  EXPECT_EQ(
      submit(*engine, {Direction::kHostToDevice, pageable.data(), device.at(), kSize, stream}),
      "pageable");
}

TEST_F(VerdictTest, ACopyBeyondThePinnedOrTheDeviceMemoryIsLeftToTheDriver) {
  auto engine = open_engine();
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  EXPECT_EQ(submit(*engine, {Direction::kDeviceToHost, host.data() + kSize - 4096, device.at(),
                             kSize, stream}),
            "not_linear");
  EXPECT_EQ(submit(*engine,
                   {Direction::kHostToDevice, host.data(), device.at(kSize - 4096), kSize, stream}),
            "not_linear");
}

// Every process of the emulated server has GPUs of its own, so that nothing can be imported there.
// This is what H200 says of imported memory: plain memory of a context, which cannot be exported
// (tests/gpu/programs/imported.cpp sees it there).
CUdeviceptr imported_memory = 0;
decltype(&cuPointerGetAttributes) attributes_of_driver;
CUresult attributes_of_imported(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr address) {
  const CUresult result = attributes_of_driver(count, attributes, values, address);
  const bool is_imported = address >= imported_memory && address < imported_memory + kSize;
  for (unsigned i = 0; i < count && is_imported && result == CUDA_SUCCESS; ++i)
    if (attributes[i] == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
      *static_cast<unsigned*>(values[i]) = 0;
  return result;
}

TEST_F(VerdictTest, ImportedMemoryIsLeftToTheDriver) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer own(driver(), kSize), imported(driver(), kSize);
  imported_memory = imported.at();
  cuda::Driver seeing = driver();
  attributes_of_driver = seeing.cuPointerGetAttributes;
  seeing.cuPointerGetAttributes = attributes_of_imported;
  const CUstream stream = new_stream();
  for (const MoverChoice mover : {MoverChoice::kKernel, MoverChoice::kCopyEngine}) {
    Options options = every_size();
    options.mover = mover;
    auto engine = Engine::open(seeing, options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
      EXPECT_EQ(submit(*engine.value(), {direction, host.data(), own.at(), kSize, stream}),
                "accelerated");
      EXPECT_EQ(submit(*engine.value(), {direction, host.data(), imported.at(), kSize, stream}),
                "not_linear");
      EXPECT_EQ(
          submit(*engine.value(), {direction, host.data(), imported.at(4096), kSize / 2, stream}),
          "not_linear");
    }
    synchronize(stream);
  }
}

TEST_F(VerdictTest, WildAddressesAreLeftToTheDriver) {
  auto engine = open_engine();
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  for (const CUdeviceptr wild : {CUdeviceptr{0}, CUdeviceptr{64}, ~CUdeviceptr{0} - 4096,
                                 reinterpret_cast<CUdeviceptr>(host.data())})
    EXPECT_EQ(submit(*engine, {Direction::kHostToDevice, host.data(), wild, kSize, stream}),
              "not_linear");
  EXPECT_EQ(submit(*engine, {Direction::kHostToDevice, nullptr, device.at(), kSize, stream}),
            "pageable");
  EXPECT_NE(submit(*engine, {Direction::kHostToDevice, reinterpret_cast<void*>(device.at()),
                             device.at(), kSize, stream}),
            "accelerated");
}

TEST_F(VerdictTest, AStreamOfAnotherGpuIsLeftToTheDriver) {
  auto engine = open_engine();
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  use_gpu(1);
  const CUstream foreign = new_stream();
  EXPECT_EQ(submit(*engine, {Direction::kHostToDevice, host.data(), device.at(), kSize, foreign}),
            "foreign_context");
  EXPECT_EQ(submit(*engine,
                   {Direction::kHostToDevice, host.data(), device.at(), kSize, CU_STREAM_LEGACY}),
            "foreign_context");
}

TEST_F(VerdictTest, WithoutRelaysNothingIsTakenAndNoContextIsMade) {
  Options options = every_size();
  options.relays.kind = RelayChoice::Kind::kNone;
  auto engine = open_engine(options);
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  EXPECT_EQ(
      submit(*engine, {Direction::kHostToDevice, host.data(), device.at(), kSize, new_stream()}),
      "no_relay");
}

TEST_F(VerdictTest, ARelayThatDoesNotExistIsRefusedByName) {
  Options options = every_size();
  options.relays = {RelayChoice::Kind::kList, {1, 77}};
  const auto engine = Engine::open(driver(), options);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("GPU 77"), std::string::npos)
      << engine.status().message();
  EXPECT_NE(engine.status().message().find(std::to_string(gpus())), std::string::npos);
}

// Streams that share a hardware queue wait for each other; braid has none in the program's context,
// and one in a relay's then.
TEST_F(VerdictTest, OneHardwareQueueIsEnough) {
  Options options = every_size();
  options.hardware_queues = 1;
  auto engine = open_engine(options);
  constexpr uint64_t kLarge = 64 << 20;
  HostBuffer host(driver(), kLarge), landing(driver(), kLarge);
  host.fill_random(3);
  DeviceBuffer device(driver(), kLarge);
  const CUstream stream = new_stream();
  const Outcome outcome =
      engine->submit({Direction::kHostToDevice, host.data(), device.at(), kLarge, stream});
  EXPECT_STREQ(verdict_name(outcome.verdict), "accelerated");
  EXPECT_GT(std::popcount(outcome.via), 1);
  MUST(driver(), cuMemcpyDtoHAsync(landing.data(), device.at(), kLarge, stream));
  synchronize(stream);
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kLarge), 0);
}

TEST_F(VerdictTest, ACapturingStreamIsLeftAlone) {
  auto engine = open_engine();
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  using Begin = CUresult (*)(CUstream, CUstreamCaptureMode);
  using End = CUresult (*)(CUstream, CUgraph*);
  const auto begin = reinterpret_cast<Begin>(symbol("cuStreamBeginCapture_v2"));
  const auto end = reinterpret_cast<End>(symbol("cuStreamEndCapture"));
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(submit(*engine, {Direction::kHostToDevice, host.data(), device.at(), kSize, stream}),
            "capturing");
  CUgraph graph = nullptr;
  EXPECT_EQ(end(stream, &graph), CUDA_SUCCESS) << "the capture is still valid";
  EXPECT_EQ(submit(*engine, {Direction::kHostToDevice, host.data(), device.at(), kSize, stream}),
            "accelerated");
  synchronize(stream);
}

// Of a pool, braid asks who may touch it: no question for a thread that records a graph.
TEST_F(VerdictTest, ACopyOfPoolMemoryHurtsNoCapture) {
  auto engine = open_engine();
  HostBuffer host(driver(), kSize);
  const CUstream recording = new_stream(), stream = new_stream();
  CUdeviceptr memory = 0;
  const auto allocate =
      reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t, CUstream)>(symbol("cuMemAllocAsync"));
  ASSERT_EQ(allocate(&memory, kSize, stream), CUDA_SUCCESS);
  engine->grant_default_pools();
  using Begin = CUresult (*)(CUstream, CUstreamCaptureMode);
  using End = CUresult (*)(CUstream, CUgraph*);
  const auto begin = reinterpret_cast<Begin>(symbol("cuStreamBeginCapture_v2"));
  const auto end = reinterpret_cast<End>(symbol("cuStreamEndCapture"));
  for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
    ASSERT_EQ(begin(recording, mode), CUDA_SUCCESS);
    EXPECT_EQ(submit(*engine, {Direction::kHostToDevice, host.data(), memory, kSize, stream}),
              "accelerated");
    EXPECT_EQ(submit(*engine, {Direction::kHostToDevice, host.data(), memory, kSize, recording}),
              "capturing");
    CUgraph graph = nullptr;
    EXPECT_EQ(end(recording, &graph), CUDA_SUCCESS) << "mode " << mode;
    synchronize(stream);
  }
}

// A thread that records a graph in Global mode forbids unsafe calls in every thread; braid's own
// are not among them.
TEST_F(VerdictTest, ACopyBesideACaptureHurtsNeither) {
  auto engine = open_engine();
  HostBuffer host(driver(), kSize), landing(driver(), kSize);
  host.fill_random(3);
  DeviceBuffer device(driver(), kSize);
  const CUstream recording = new_stream(), stream = new_stream();
  using Begin = CUresult (*)(CUstream, CUstreamCaptureMode);
  using End = CUresult (*)(CUstream, CUgraph*);
  const auto begin = reinterpret_cast<Begin>(symbol("cuStreamBeginCapture_v2"));
  const auto end = reinterpret_cast<End>(symbol("cuStreamEndCapture"));
  ASSERT_EQ(begin(recording, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(submit(*engine, {Direction::kHostToDevice, host.data(), device.at(), kSize, stream}),
            "accelerated");
  EXPECT_EQ(submit(*engine, {Direction::kDeviceToHost, landing.data(), device.at(), kSize, stream}),
            "accelerated");
  CUgraph graph = nullptr;
  EXPECT_EQ(end(recording, &graph), CUDA_SUCCESS);
  synchronize(stream);
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
}

}  // namespace
}  // namespace braid::multipath
