// Which links carry a transfer's bytes, as the counts say.
#include <map>

#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kSize = 256 << 20;
constexpr int kWaitMs = 5000;

class PathsTest : public test::ServerTest {
 protected:
  void copy(Engine& engine, Direction direction, int target, uint64_t size_bytes) {
    use_gpu(target);
    HostBuffer host(driver(), size_bytes);
    DeviceBuffer device(driver(), size_bytes);
    const CUstream stream = new_stream();
    ASSERT_EQ(engine.submit({direction, host.data(), device.at(), size_bytes, stream}),
              Verdict::kAccelerated);
    synchronize(stream);
  }

  static std::map<int, uint64_t> bytes_by_gpu(Engine& engine, Direction direction, int target) {
    std::map<int, uint64_t> bytes;
    for (const PathCount& count : engine.collect(kWaitMs))
      if (count.direction == direction && count.target == target) bytes[count.via] += count.bytes;
    return bytes;
  }
};

TEST_F(PathsTest, EveryLinkOfTheServerCarriesALargeTransferAndTheSumIsExact) {
  auto engine = open_engine();
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
    copy(*engine, direction, 1, kSize + 12345);
    const auto bytes = bytes_by_gpu(*engine, direction, 1);
    EXPECT_EQ(bytes.size(), static_cast<size_t>(gpus()));
    uint64_t total = 0;
    for (const auto& [gpu, count] : bytes) total += count;
    EXPECT_EQ(total, kSize + 12345);
  }
}

// Lists of a few bytes in slices of 1 MiB, as batches of many small entries have: what they fall
// short of is more than 4 GiB on each path.
TEST_F(PathsTest, TheSumIsExactForABatchOfManySmallEntries) {
  constexpr uint64_t kEntries = 128 << 10, kEntryBytes = 64;
  Options options = every_size();
  options.slice_bytes = 1 << 20;
  auto engine = open_engine(options);
  engine->limit_paths(2);
  HostBuffer host(driver(), kEntries * kEntryBytes);
  DeviceBuffer device(driver(), kEntries * kEntryBytes);
  std::vector<Segment> entries;  // back to front at one end: nothing becomes one piece
  for (uint64_t i = 0; i < kEntries; ++i)
    entries.push_back(
        {host.data() + i * kEntryBytes, device.at((kEntries - 1 - i) * kEntryBytes), kEntryBytes});
  const CUstream stream = new_stream();
  const Outcome outcome = engine->submit(Batch{Direction::kHostToDevice, entries, stream});
  ASSERT_EQ(outcome, Verdict::kAccelerated);
  ASSERT_EQ(outcome.mover, Mover::kKernel);
  synchronize(stream);
  uint64_t total = 0;
  for (const auto& [gpu, count] : bytes_by_gpu(*engine, Direction::kHostToDevice, 0)) {
    EXPECT_LT(count, kEntries * kEntryBytes) << "GPU " << gpu;
    total += count;
  }
  EXPECT_EQ(total, kEntries * kEntryBytes);
}

TEST_F(PathsTest, OnlyAllowedRelaysTakePart) {
  Options options = every_size();
  options.relays = {RelayChoice::Kind::kList, {1}};
  auto engine = open_engine(options);
  copy(*engine, Direction::kHostToDevice, 0, kSize);
  const auto bytes = bytes_by_gpu(*engine, Direction::kHostToDevice, 0);
  ASSERT_EQ(bytes.size(), 2u);
  EXPECT_GT(bytes.at(0), kSize / 4);
  EXPECT_GT(bytes.at(1), kSize / 4);
}

std::vector<unsigned> launched_blocks;
decltype(&cuLaunchKernel) launch_of_driver;
decltype(&cuLaunchKernelEx) launch_ex_of_driver;
CUresult launch_and_note(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned width,
                         unsigned height, unsigned depth, unsigned shared_bytes, CUstream stream,
                         void** parameters, void** extra) {
  launched_blocks.push_back(x * y * z);
  return launch_of_driver(function, x, y, z, width, height, depth, shared_bytes, stream, parameters,
                          extra);
}

CUresult launch_ex_and_note(const CUlaunchConfig* config, CUfunction function, void** parameters,
                            void** extra) {
  launched_blocks.push_back(config->gridDimX);
  return launch_ex_of_driver(config, function, parameters, extra);
}

// The driver, whose launches are noted.
cuda::Driver noting_driver(const cuda::Driver& driver) {
  cuda::Driver noting = driver;
  launch_of_driver = noting.cuLaunchKernel;
  noting.cuLaunchKernel = launch_and_note;
  launch_ex_of_driver = noting.cuLaunchKernelEx;
  noting.cuLaunchKernelEx = launch_ex_and_note;
  return noting;
}

// Options::blocks_per_path, of linear copies and batches, by either kernel.
TEST_F(PathsTest, EveryPathSpendsTheThreadBlocksThatWereAsked) {
  const cuda::Driver noting = noting_driver(driver());
  HostBuffer host(driver(), 16 << 20);
  DeviceBuffer device(driver(), 16 << 20);
  const CUstream stream = new_stream();
  for (const uint32_t blocks : {1u, 3u, 11u}) {
    Options options = every_size();
    options.blocks_per_path = blocks;
    options.mover = MoverChoice::kKernel;
    auto engine = Engine::open(noting, options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    for (const uint64_t offset : {0, 1}) {
      const std::vector<Segment> halves = {{host.data() + (8 << 20), device.at() + offset, 7 << 20},
                                           {host.data(), device.at(8 << 20) + offset, 7 << 20}};
      for (const size_t count : {1, 2}) {
        launched_blocks.clear();
        const Batch batch{Direction::kHostToDevice, std::span(halves).first(count), stream};
        ASSERT_EQ(engine.value()->submit(batch), Verdict::kAccelerated);
        synchronize(stream);
        EXPECT_GT(launched_blocks.size(), 1u);
        EXPECT_EQ(launched_blocks, std::vector<unsigned>(launched_blocks.size(), blocks));
      }
    }
  }
}

// Writes to the host crowd out reads from it (docs/measurements, 2026-11-28-H200-both-ways).
TEST_F(PathsTest, FewerThreadBlocksWriteToTheHostThanReadFromIt) {
  const cuda::Driver noting = noting_driver(driver());
  auto engine = Engine::open(noting, every_size());
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  constexpr uint64_t kBytes = 16 << 20;
  HostBuffer host(driver(), kBytes);
  DeviceBuffer device(driver(), kBytes);
  const CUstream stream = new_stream();
  const auto blocks_of = [&](Direction direction, uint64_t segment_bytes) {
    std::vector<Segment> segments;
    for (uint64_t at = 0; at < kBytes; at += segment_bytes)
      segments.push_back({host.data() + at, device.at(kBytes - segment_bytes - at), segment_bytes});
    launched_blocks.clear();
    EXPECT_EQ(engine.value()->submit(Batch{direction, segments, stream}), Verdict::kAccelerated);
    synchronize(stream);
    EXPECT_GT(launched_blocks.size(), 1u);
    return std::pair(launched_blocks.front(), launched_blocks.back());  // the GPU's own; a relay's
  };
  EXPECT_EQ(blocks_of(Direction::kHostToDevice, 64 << 10), std::pair(4u, 4u));
  EXPECT_EQ(blocks_of(Direction::kDeviceToHost, 64 << 10), std::pair(3u, 2u));
  EXPECT_EQ(blocks_of(Direction::kHostToDevice, 4 << 10), std::pair(4u, 4u));
  EXPECT_EQ(blocks_of(Direction::kDeviceToHost, 4 << 10), std::pair(4u, 4u));
}

TEST_F(PathsTest, APathLimitHolds) {
  auto engine = open_engine();
  engine->limit_paths(1);
  copy(*engine, Direction::kHostToDevice, 0, kSize);
  EXPECT_EQ(bytes_by_gpu(*engine, Direction::kHostToDevice, 0),
            (std::map<int, uint64_t>{{0, kSize}}));
}

TEST_F(PathsTest, ASmallTransferTakesTheDirectPathFirst) {
  auto engine = open_engine();
  copy(*engine, Direction::kHostToDevice, 0, 64 << 10);
  EXPECT_EQ(bytes_by_gpu(*engine, Direction::kHostToDevice, 0),
            (std::map<int, uint64_t>{{0, 64 << 10}}));
}

}  // namespace
}  // namespace braid::multipath
