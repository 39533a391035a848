// Every byte arrives, and no byte beside the destination changes.
#include <cstring>
#include <random>

#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kGuard = 64;
constexpr uint8_t kBackground = 0xA7;

struct Shape {
  uint64_t size_bytes;
  uint64_t host_offset;
  uint64_t device_offset;
};

class BytesTest : public test::ServerTest {
 protected:
  // Copies there and back through braid, and looks at every byte of both destinations.
  void round_trip(Engine& engine, CUstream stream, const Shape& shape, HostBuffer& source,
                  HostBuffer& landing, DeviceBuffer& device) {
    SCOPED_TRACE(::testing::Message() << shape.size_bytes << " bytes, host +" << shape.host_offset
                                      << ", device +" << shape.device_offset);
    const uint64_t span = shape.size_bytes + 2 * kGuard;
    uint8_t* from = source.data() + kGuard + shape.host_offset;
    uint8_t* to = landing.data() + kGuard + shape.host_offset;
    const CUdeviceptr middle = device.at(kGuard + shape.device_offset);
    MUST(driver(), cuMemsetD8(device.at(), kBackground, span + shape.device_offset));
    MUST(driver(), cuCtxSynchronize());
    submit(engine, {Direction::kHostToDevice, from, middle, shape.size_bytes, stream});
    check_device(device, shape, from);

    std::memset(landing.data(), kBackground, span + shape.host_offset);
    submit(engine, {Direction::kDeviceToHost, to, middle, shape.size_bytes, stream});
    ASSERT_EQ(std::memcmp(to, from, shape.size_bytes), 0) << "D2H";
    expect_background(landing.data(), to - landing.data(), "before the D2H destination");
    expect_background(to + shape.size_bytes, kGuard, "behind the D2H destination");
  }

  void submit(Engine& engine, const Batch& transfer) {
    ASSERT_STREQ(verdict_name(engine.submit(transfer)), "accelerated");
    synchronize(transfer.stream);
  }

  void check_device(const DeviceBuffer& device, const Shape& shape, const uint8_t* expected) {
    const uint64_t lead = kGuard + shape.device_offset;
    std::vector<uint8_t> seen(lead + shape.size_bytes + kGuard);
    MUST(driver(), cuMemcpyDtoH(seen.data(), device.at(), seen.size()));
    ASSERT_EQ(std::memcmp(seen.data() + lead, expected, shape.size_bytes), 0) << "H2D";
    expect_background(seen.data(), static_cast<int64_t>(lead), "before the H2D destination");
    expect_background(seen.data() + lead + shape.size_bytes, kGuard, "behind the H2D destination");
  }

  static void expect_background(const uint8_t* data, int64_t count, const char* where) {
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(data[i], kBackground) << where << ", byte " << i;
  }
};

TEST_F(BytesTest, AreRightAtEverySmallSizeAndOffset) {
  auto engine = open_engine();
  const CUstream stream = new_stream();
  HostBuffer source(driver(), 1 << 20), landing(driver(), 1 << 20);
  source.fill_random(7);
  DeviceBuffer device(driver(), 1 << 20);
  for (const uint64_t size : {1, 2, 15, 16, 17, 31, 33, 4095, 65535, 65536, 65537, 200003})
    for (const uint64_t host_offset : {0, 1, 8, 15})
      for (const uint64_t device_offset : {0, 1, 8, 13})
        round_trip(*engine, stream, {size, host_offset, device_offset}, source, landing, device);
}

TEST_F(BytesTest, AreRightAtLargeSizes) {
  auto engine = open_engine();
  const CUstream stream = new_stream();
  const uint64_t largest = uint64_t{1} << 30;
  HostBuffer source(driver(), largest + 4096), landing(driver(), largest + 4096);
  source.fill_random(8);
  DeviceBuffer device(driver(), largest + 4096);
  for (const Shape& shape :
       {Shape{(1 << 20) + 3, 5, 9}, Shape{(16 << 20) - 1, 1, 1}, Shape{(64 << 20) + 4097, 3, 0},
        Shape{largest, 0, 0}, Shape{largest - 17, 7, 7}})
    round_trip(*engine, stream, shape, source, landing, device);
}

TEST_F(BytesTest, AreRightAtRandomShapesOnEveryTarget) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  auto engine = open_engine();
  constexpr uint64_t kMost = 24 << 20;
  HostBuffer source(driver(), kMost), landing(driver(), kMost);
  source.fill_random(seed);
  for (int gpu = 0; gpu < gpus(); ++gpu) {
    use_gpu(gpu);
    DeviceBuffer device(driver(), kMost);
    const CUstream stream = new_stream();
    for (int i = 0; i < 12; ++i) {
      const uint64_t size = 1 + random() % (uint64_t{1} << (random() % 24));
      round_trip(*engine, stream, {size, random() % 512, random() % 512}, source, landing, device);
    }
  }
}

// vLLM registers /dev/shm memory with flags 0; the relays must reach it all the same.
TEST_F(BytesTest, AreRightInMemoryRegisteredWithoutFlags) {
  auto engine = open_engine();
  const CUstream stream = new_stream();
  constexpr uint64_t kSize = 32 << 20;
  auto source = HostBuffer::registered(driver(), kSize + 4096, 0);
  auto landing = HostBuffer::registered(driver(), kSize + 4096, 0);
  source->fill_random(9);
  DeviceBuffer device(driver(), kSize + 4096);
  round_trip(*engine, stream, {kSize, 0, 0}, *source, *landing, device);
  for (const PathCount& count : engine->collect(1000)) EXPECT_GT(count.bytes, 0u);
  EXPECT_GT(engine->collect(1000).size(), 2u) << "relays took part";
}

}  // namespace
}  // namespace braid::multipath
