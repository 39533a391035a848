// Every byte arrives by copy engines, no byte beside the destination changes, and nothing runs when
// nothing is in flight.
#include <random>
#include <set>
#include <thread>

#include "multipath/copy_engine/fixture.h"
#include "support/gate.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint8_t kBackground = 0xA7;

class CopyEngineBytesTest : public CopyEngineTest {
 protected:
  // Segments to the device and back through the mover, then both ends are compared whole.
  void round_trip(const std::vector<Segment>& segments, HostBuffer& host, HostBuffer& landing,
                  const DeviceBuffer& device, uint64_t span, CUstream stream, int target) {
    std::vector<uint8_t> expected(span, kBackground);
    std::vector<Segment> back;
    for (const Segment& segment : segments) {
      const uint64_t host_offset = static_cast<uint8_t*>(segment.host) - host.data();
      std::memcpy(&expected[segment.device - device.at()], segment.host, segment.size_bytes);
      back.push_back({landing.data() + host_offset, segment.device, segment.size_bytes});
    }
    MUST(driver(), cuMemsetD8(device.at(), kBackground, span));
    MUST(driver(), cuCtxSynchronize());
    ASSERT_STREQ(verdict_name(submit({Direction::kHostToDevice, segments, stream}, target)),
                 "accelerated");
    synchronize(stream);
    std::vector<uint8_t> seen(span);
    MUST(driver(), cuMemcpyDtoH(seen.data(), device.at(), span));
    ASSERT_TRUE(seen == expected) << "H2D";

    std::memset(landing.data(), kBackground, landing.size());
    std::vector<uint8_t> landed(landing.size(), kBackground);
    for (const Segment& segment : segments)
      std::memcpy(&landed[static_cast<uint8_t*>(segment.host) - host.data()], segment.host,
                  segment.size_bytes);
    ASSERT_STREQ(verdict_name(submit({Direction::kDeviceToHost, back, stream}, target)),
                 "accelerated");
    synchronize(stream);
    ASSERT_EQ(std::memcmp(landing.data(), landed.data(), landed.size()), 0) << "D2H";
  }

  // Both ways on every target; how many bytes were submitted.
  uint64_t round_trip_random_batches() {
    const uint64_t seed = std::random_device{}();
    std::mt19937_64 random(seed);
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    constexpr uint64_t kSpan = 40 * kMiB;
    HostBuffer host(driver(), kSpan), landing(driver(), kSpan);
    host.fill_random(seed);
    uint64_t submitted_bytes = 0;
    for (int gpu = 0; gpu < gpus(); ++gpu) {
      use_gpu(gpu);
      DeviceBuffer device(driver(), kSpan);
      const CUstream stream = new_stream();
      for (const uint64_t block : {uint64_t{5000}, 64 * uint64_t{1024}, 3 * kMiB}) {
        // Blocks in random order on either side; some neighbours stay neighbours.
        std::vector<uint64_t> places(kSpan / block - 1);
        for (size_t i = 0; i < places.size(); ++i) places[i] = i;
        if (random() % 3 != 0) std::shuffle(places.begin(), places.end(), random);
        std::vector<Segment> segments;
        for (size_t i = 0; i < places.size(); ++i) {
          const uint64_t size = random() % 4 == 0 ? random() % block : block;
          segments.push_back({host.data() + i * block, device.at(places[i] * block), size});
          submitted_bytes += 2 * size;
        }
        round_trip(segments, host, landing, device, kSpan, stream, gpu);
      }
    }
    return submitted_bytes;
  }
};

TEST_F(CopyEngineBytesTest, AreRightAtOddSizesAndOffsets) {
  open();
  constexpr uint64_t kSpan = 65 * kMiB;
  HostBuffer host(driver(), kSpan), landing(driver(), kSpan);
  host.fill_random(31);
  DeviceBuffer device(driver(), kSpan);
  const CUstream stream = new_stream();
  for (const uint64_t size : {uint64_t{1}, uint64_t{17}, kMiB - 1, kMiB, kMiB + 1, 4 * kMiB + 3,
                              9 * kMiB - 5, 64 * kMiB + 4097})
    for (const uint64_t offset : {uint64_t{0}, uint64_t{13}})
      round_trip({{host.data() + offset, device.at(2 * offset + 1), size}}, host, landing, device,
                 kSpan, stream, 0);
}

TEST_F(CopyEngineBytesTest, AreRightInRandomBatchesOnEveryTarget) {
  open();
  const uint64_t submitted_bytes = round_trip_random_batches();
  EXPECT_EQ(carried_bytes(), submitted_bytes);
}

// Whoever is free pulls, so on a busy machine the direct link may be first each time. With shares
// that are given, every relay has to carry its own.
TEST_F(CopyEngineBytesTest, AreRightInRandomBatchesThroughEveryRelay) {
  Policy policy;
  policy.split.assign(static_cast<size_t>(gpus()), 1);
  open(policy);
  const uint64_t submitted_bytes = round_trip_random_batches();
  EXPECT_EQ(carried_bytes(), submitted_bytes);
  const auto relays = static_cast<uint64_t>(gpus() - 1);
  EXPECT_GT(relayed_bytes(), submitted_bytes * relays / (relays + 1) * 9 / 10);
  std::set<std::pair<int, int>> links;
  for (const PathCount& count : counts()) links.insert({count.target, count.via});
  EXPECT_EQ(links.size(), static_cast<size_t>(gpus()) * static_cast<size_t>(gpus()));
}

TEST_F(CopyEngineBytesTest, AreRightWithManyStreamsTargetsAndBothDirectionsAtOnce) {
  open();
  constexpr uint64_t kSize = 24 * kMiB + 77;
  constexpr int kStreams = 3;
  struct Copy {
    std::unique_ptr<HostBuffer> host, landing;
    std::unique_ptr<DeviceBuffer> device;
    CUstream stream = nullptr;
    int gpu = 0;
  };
  std::vector<Copy> copies;
  for (int gpu = 0; gpu < gpus(); ++gpu)
    for (int i = 0; i < kStreams; ++i) {
      use_gpu(gpu);
      Copy copy{std::make_unique<HostBuffer>(driver(), kSize),
                std::make_unique<HostBuffer>(driver(), kSize),
                std::make_unique<DeviceBuffer>(driver(), kSize), new_stream(), gpu};
      copy.host->fill_random(100 * gpu + i);
      copies.push_back(std::move(copy));
    }
  // The way back waits for the way there in the same stream, while other streams are on theirs.
  for (Copy& copy : copies) {
    ASSERT_EQ(
        submit(Direction::kHostToDevice, *copy.host, *copy.device, kSize, copy.stream, copy.gpu),
        Verdict::kAccelerated);
    ASSERT_EQ(
        submit(Direction::kDeviceToHost, *copy.landing, *copy.device, kSize, copy.stream, copy.gpu),
        Verdict::kAccelerated);
  }
  for (Copy& copy : copies) {
    synchronize(copy.stream);
    EXPECT_EQ(std::memcmp(copy.host->data(), copy.landing->data(), kSize), 0) << copy.gpu;
  }
  EXPECT_TRUE(mover->drain(2000));
}

TEST_F(CopyEngineBytesTest, AnUnreachedCopyNeitherMovesNorHoldsOthersUp) {
  open();
  constexpr uint64_t kSize = 16 * kMiB;
  HostBuffer host(driver(), kSize);
  host.fill_random(5);
  DeviceBuffer held(driver(), kSize), free(driver(), kSize);
  MUST(driver(), cuMemsetD8(held.at(), kBackground, kSize));
  const CUstream blocked = new_stream(), other = new_stream();
  test::Gate gate(driver());
  gate.hold(blocked);
  ASSERT_EQ(submit(Direction::kHostToDevice, host, held, kSize, blocked), Verdict::kAccelerated);
  ASSERT_EQ(submit(Direction::kHostToDevice, host, free, kSize, other), Verdict::kAccelerated);
  synchronize(other);
  EXPECT_EQ(driver().cuStreamQuery(blocked), CUDA_ERROR_NOT_READY);
  std::vector<uint8_t> seen(kSize);
  MUST(driver(), cuMemcpyDtoHAsync(seen.data(), held.at(), kSize, other));
  synchronize(other);
  EXPECT_EQ(seen, std::vector<uint8_t>(kSize, kBackground));
  gate.open();
  synchronize(blocked);
  MUST(driver(), cuMemcpyDtoH(seen.data(), held.at(), kSize));
  EXPECT_EQ(std::memcmp(seen.data(), host.data(), kSize), 0);
}

TEST_F(CopyEngineBytesTest, TheThreadStartsWithTheFirstCopyAndSleepsAfterTheLast) {
  open();
  EXPECT_EQ(use().thread_cpu_ns, 0u) << "no copy, no thread";
  constexpr uint64_t kSize = 64 * kMiB;
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(submit(Direction::kHostToDevice, host, device, kSize, stream), Verdict::kAccelerated);
  synchronize(stream);
  ASSERT_TRUE(mover->drain(2000));
  EXPECT_TRUE(mover->is_idle());
  EXPECT_GT(use().thread_cpu_ns, 0u);
  // On a busy machine its last steps into its sleep come late. A thread that sleeps spends nothing
  // at all; one that looks around now and then spends some in each of these.
  bool has_slept = false;
  for (int look = 0; look < 10 && !has_slept; ++look) {
    const uint64_t spent_ns = use().thread_cpu_ns;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    has_slept = use().thread_cpu_ns == spent_ns;
  }
  EXPECT_TRUE(has_slept);
}

TEST_F(CopyEngineBytesTest, AContextThatIsForgottenNeitherRelaysNorReceives) {
  open();
  constexpr uint64_t kSize = 64 * kMiB;
  HostBuffer host(driver(), kSize), landing(driver(), kSize);
  host.fill_random(6);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(submit(Direction::kHostToDevice, host, device, kSize, stream), Verdict::kAccelerated);
  mover->forget(*endpoints[1]);
  ASSERT_EQ(submit(Direction::kDeviceToHost, landing, device, kSize, stream),
            Verdict::kAccelerated);
  synchronize(stream);
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
  ASSERT_TRUE(mover->drain(2000));
  for (const PathCount& count : counts())
    if (count.direction == Direction::kDeviceToHost) {
      EXPECT_NE(count.via, 1);
    }
  EXPECT_EQ(submit(Direction::kHostToDevice, host, device, kSize, stream, 1),
            Verdict::kForeignContext);
  EXPECT_EQ(use().relay_buffer_bytes[1], 0u);
}

TEST_F(CopyEngineBytesTest, RelayBuffersKeepTheirLimit) {
  Options options = every_size();
  options.device_memory_bytes = 9 * kMiB;
  open({}, options);
  EXPECT_EQ(use().relay_buffer_bytes[0], 8 * kMiB);
  constexpr uint64_t kSize = 64 * kMiB;
  HostBuffer host(driver(), kSize), landing(driver(), kSize);
  host.fill_random(7);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  ASSERT_EQ(submit(Direction::kHostToDevice, host, device, kSize, stream), Verdict::kAccelerated);
  MUST(driver(), cuMemcpyDtoHAsync(landing.data(), device.at(), kSize, stream));
  synchronize(stream);
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
  EXPECT_GT(relayed_bytes(), 0u);
}

TEST_F(CopyEngineBytesTest, SlicesHaveTheSizeThatIsAskedFor) {
  Options options = every_size();
  options.mover = MoverChoice::kCopyEngine;
  options.slice_bytes = kMiB / 2;
  auto engine = open_engine(options);
  constexpr uint64_t kSize = 32 * kMiB;
  HostBuffer host(driver(), kSize), landing(driver(), kSize);
  host.fill_random(9);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  const Outcome outcome =
      engine->submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream});
  ASSERT_EQ(outcome.verdict, Verdict::kAccelerated);
  EXPECT_EQ(outcome.slice_bytes, options.slice_bytes);
  MUST(driver(), cuMemcpyDtoHAsync(landing.data(), device.at(), kSize, stream));
  synchronize(stream);
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
  uint64_t slices = 0;
  for (const PathCount& count : engine->collect(2000)) slices += count.slices;
  EXPECT_EQ(slices, kSize / options.slice_bytes);
}

TEST_F(CopyEngineBytesTest, TheEngineTakesItByOption) {
  Options options = every_size();
  options.mover = MoverChoice::kCopyEngine;
  auto engine = open_engine(options);
  constexpr uint64_t kSize = 64 * kMiB + 5;
  HostBuffer host(driver(), kSize), landing(driver(), kSize);
  host.fill_random(8);
  DeviceBuffer device(driver(), kSize);
  const CUstream stream = new_stream();
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
    HostBuffer& end = direction == Direction::kHostToDevice ? host : landing;
    const Outcome outcome = engine->submit({direction, end.data(), device.at(), kSize, stream});
    ASSERT_EQ(outcome.verdict, Verdict::kAccelerated);
    EXPECT_EQ(outcome.mover, Mover::kCopyEngine);
    EXPECT_GT(outcome.slice_bytes, 0u);
  }
  synchronize(stream);
  EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
  uint64_t bytes = 0;
  const auto collected = std::make_unique<PathCounts>();
  engine->collect(2000, *collected);
  for (const PathCount& count : collected->all()) {
    EXPECT_EQ(count.mover, Mover::kCopyEngine);
    bytes += count.bytes;
  }
  EXPECT_EQ(bytes, 2 * kSize);
  EXPECT_GT(collected->copy_engine.thread_cpu_ns, 0u);
  for (int gpu = 0; gpu < gpus(); ++gpu)
    EXPECT_EQ(collected->copy_engine.relay_buffer_bytes[gpu], 20 * kMiB) << gpu;
  if (gpus() < 3) return;  // no relay would be left
  engine->forget_context(context(1));
  EXPECT_EQ(engine->submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream}),
            Verdict::kAccelerated);
  synchronize(stream);
}

}  // namespace
}  // namespace braid::multipath
