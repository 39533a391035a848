// Batches: segments scattered at both ends arrive whole, nothing beside them changes, and every
// link carries its part of the bytes whatever the sizes of the segments.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint8_t kBackground = 0xA7;
constexpr int kWaitMs = 5000;

class BatchTest : public test::ServerTest {
 protected:
  // Segments of these sizes in random order at both ends, with gaps between them.
  static std::vector<Segment> scatter(std::vector<uint64_t> sizes, uint64_t alignment,
                                      HostBuffer& host, const DeviceBuffer& device,
                                      std::mt19937_64& random) {
    std::vector<Segment> segments(sizes.size());
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    const auto place = [&](auto set) {
      std::shuffle(order.begin(), order.end(), random);
      uint64_t at = 64;
      for (const size_t i : order) {
        at = (at + random() % 96 + alignment - 1) / alignment * alignment;
        set(i, at);
        at += sizes[i];
      }
    };
    place([&](size_t i, uint64_t at) { segments[i].host = host.data() + at; });
    place([&](size_t i, uint64_t at) { segments[i].device = device.at(at); });
    for (size_t i = 0; i < sizes.size(); ++i) segments[i].size_bytes = sizes[i];
    return segments;
  }

  std::vector<uint8_t> read(const DeviceBuffer& device, uint64_t size_bytes) {
    std::vector<uint8_t> bytes(size_bytes);
    MUST(driver(), cuMemcpyDtoH(bytes.data(), device.at(), size_bytes));
    return bytes;
  }

  void round_trip(Engine& engine, const std::vector<uint64_t>& sizes, uint64_t alignment,
                  uint64_t seed) {
    SCOPED_TRACE(::testing::Message()
                 << sizes.size() << " segments, alignment " << alignment << ", seed " << seed);
    std::mt19937_64 random(seed);
    const uint64_t total = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
    const uint64_t room = total + sizes.size() * (96 + alignment) + 4096;
    HostBuffer source(driver(), room), landing(driver(), room);
    DeviceBuffer device(driver(), room);
    source.fill_random(seed);
    std::vector<Segment> there = scatter(sizes, alignment, source, device, random);
    std::vector<uint8_t> expected(room, kBackground);
    for (const Segment& segment : there)
      std::memcpy(expected.data() + (segment.device - device.at()), segment.host,
                  segment.size_bytes);
    MUST(driver(), cuMemsetD8(device.at(), kBackground, room));
    MUST(driver(), cuCtxSynchronize());
    submit(engine, {Direction::kHostToDevice, there, new_stream()});
    ASSERT_TRUE(read(device, room) == expected) << "H2D";

    std::vector<Segment> back = there;
    for (Segment& segment : back)
      segment.host = landing.data() + (static_cast<uint8_t*>(segment.host) - source.data());
    std::memset(landing.data(), kBackground, room);
    std::fill(expected.begin(), expected.end(), kBackground);
    for (const Segment& segment : there) {
      const auto* from = static_cast<uint8_t*>(segment.host);
      std::memcpy(expected.data() + (from - source.data()), from, segment.size_bytes);
    }
    submit(engine, {Direction::kDeviceToHost, back, new_stream()});
    ASSERT_EQ(std::memcmp(landing.data(), expected.data(), room), 0) << "D2H";
  }

  void submit(Engine& engine, const Batch& batch) {
    ASSERT_STREQ(verdict_name(engine.submit(batch)), "accelerated");
    synchronize(batch.stream);
  }
};

TEST_F(BatchTest, ScatteredSegmentsOfAnySizeArriveWhole) {
  auto engine = open_engine();
  const uint64_t seed = ::testing::UnitTest::GetInstance()->random_seed();
  std::mt19937_64 random(seed);
  std::vector<uint64_t> sizes;
  for (int i = 0; i < 300; ++i) sizes.push_back(1 + random() % 100'000);
  for (int i = 0; i < 300; ++i) sizes.push_back(1 + random() % 40);
  sizes.push_back(5'000'001);
  for (const uint64_t alignment : {1, 16}) round_trip(*engine, sizes, alignment, seed + alignment);
}

TEST_F(BatchTest, BlocksOfAKvCacheArriveWhole) {
  auto engine = open_engine();
  for (const uint64_t block_bytes : {8 << 10, 16 << 10, 64 << 10})
    round_trip(*engine, std::vector<uint64_t>((16 << 20) / block_bytes, block_bytes), 256, 3);
}

TEST_F(BatchTest, SegmentsThatContinueEachOtherAreOne) {
  auto engine = open_engine();
  constexpr uint64_t kSize = 8 << 20;
  HostBuffer source(driver(), kSize);
  source.fill_random(9);
  DeviceBuffer device(driver(), kSize);
  std::vector<Segment> segments;
  for (uint64_t at = 0; at < kSize; at += 4096)
    segments.push_back({source.data() + at, device.at(at), 4096});
  submit(*engine, {Direction::kHostToDevice, segments, new_stream()});
  const std::vector<uint8_t> seen = read(device, kSize);
  EXPECT_EQ(std::memcmp(seen.data(), source.data(), kSize), 0);
}

TEST_F(BatchTest, PathsShareTheBytesAndNotTheEntries) {
  auto engine = open_engine();
  // One segment has nearly all bytes: by entries, one path would carry it alone.
  std::vector<uint64_t> sizes(15, 4096);
  sizes.push_back(256 << 20);
  round_trip(*engine, sizes, 16, 1);
  std::vector<uint64_t> bytes(static_cast<size_t>(gpus()));
  for (const PathCount& count : engine->collect(kWaitMs))
    if (count.direction == Direction::kHostToDevice)
      bytes[static_cast<size_t>(count.via)] += count.bytes;
  const uint64_t total = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  EXPECT_EQ(total, (256u << 20) + 15 * 4096);
  for (const uint64_t carried : bytes) EXPECT_GT(carried, total / (4 * bytes.size()));
}

TEST_F(BatchTest, OneEntryThatCannotBeCarriedKeepsTheWholeBatchNative) {
  auto engine = open_engine();
  HostBuffer host(driver(), 1 << 20);
  DeviceBuffer device(driver(), 1 << 20);
  std::vector<uint8_t> pageable(4096);
  const CUstream stream = new_stream();
  MUST(driver(), cuMemsetD8(device.at(), kBackground, 1 << 20));
  std::vector<Segment> segments = {{host.data(), device.at(), 4096},
                                   {pageable.data(), device.at(8192), 4096}};
  EXPECT_EQ(engine->submit(Batch{Direction::kHostToDevice, segments, stream}), Verdict::kPageable);
  segments[1] = {host.data() + 8192, device.at((1 << 20) - 100), 4096};
  EXPECT_EQ(engine->submit(Batch{Direction::kHostToDevice, segments, stream}), Verdict::kNotLinear);
  synchronize(stream);
  for (const uint8_t byte : read(device, 1 << 20)) ASSERT_EQ(byte, kBackground);
}

TEST_F(BatchTest, ManyInFlightReuseTheListsInTurn) {
  auto engine = open_engine();
  constexpr uint64_t kSegments = 3000, kSegmentBytes = 8 << 10;
  HostBuffer source(driver(), 2 * kSegments * kSegmentBytes);
  source.fill_random(21);
  DeviceBuffer device(driver(), 2 * kSegments * kSegmentBytes);
  const CUstream stream = new_stream();
  std::vector<Segment> segments;
  for (uint64_t i = 0; i < kSegments; ++i)
    segments.push_back({source.data() + i * 2 * kSegmentBytes,
                        device.at((kSegments - 1 - i) * 2 * kSegmentBytes), kSegmentBytes});
  int accelerated = 0;
  for (int i = 0; i < 400; ++i) {
    const Verdict verdict = engine->submit(Batch{Direction::kHostToDevice, segments, stream});
    if (verdict == Verdict::kAccelerated)
      ++accelerated;
    else
      ASSERT_EQ(verdict, Verdict::kSaturated);
    if (i % 40 == 39) synchronize(stream);
  }
  synchronize(stream);
  EXPECT_GE(accelerated, 100);
  const std::vector<uint8_t> seen = read(device, 2 * kSegments * kSegmentBytes);
  for (const Segment& segment : segments)
    ASSERT_EQ(
        std::memcmp(seen.data() + (segment.device - device.at()), segment.host, kSegmentBytes), 0);
}

}  // namespace
}  // namespace braid::multipath
