// Memory that is not every GPU's to touch: relays take part where they may, and nobody faults.
#include <bit>
#include <cstring>

#include "multipath/granting.h"
#include "multipath/memory_fixture.h"

namespace braid::multipath {
namespace {

using test::access_by;
using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kSize = 64 << 20;
constexpr CUmemAccess_flags kReadOnly = CU_MEM_ACCESS_FLAGS_PROT_READ;

class AccessTest : public test::MemoryTest {
 protected:
  void SetUp() override {
    gpus_needed = 4;
    ServerTest::SetUp();
    if (IsSkipped()) return;
    engine_ = open_engine();
    source_ = std::make_unique<HostBuffer>(driver(), kSize);
    landing_ = std::make_unique<HostBuffer>(driver(), kSize);
    stream_ = new_stream();
  }

  // As a program under braid: the engine's copy, or the driver's where it declines.
  Outcome copy(Direction direction, HostBuffer& host, CUdeviceptr device, uint64_t size_bytes) {
    const Outcome outcome = engine_->submit({direction, host.data(), device, size_bytes, stream_});
    if (outcome == Verdict::kAccelerated) return outcome;
    if (direction == Direction::kHostToDevice)
      MUST(driver(), cuMemcpyHtoDAsync(device, host.data(), size_bytes, stream_));
    else
      MUST(driver(), cuMemcpyDtoHAsync(host.data(), device, size_bytes, stream_));
    return outcome;
  }

  struct RoundTrip {
    std::string up, down;  // verdicts
    uint64_t up_via = 0, down_via = 0;
    bool is_intact = false;
  };
  RoundTrip round_trip(CUdeviceptr device, uint64_t size_bytes = kSize) {
    source_->fill_random(++seed_);
    std::memset(landing_->data(), 0, size_bytes);
    const Outcome up = copy(Direction::kHostToDevice, *source_, device, size_bytes);
    const Outcome down = copy(Direction::kDeviceToHost, *landing_, device, size_bytes);
    synchronize(stream_);
    return {verdict_name(up), verdict_name(down), up.via, down.via,
            std::memcmp(source_->data(), landing_->data(), size_bytes) == 0};
  }
  void expect_direct(const RoundTrip& trip) {
    EXPECT_EQ(trip.up + " " + trip.down, "no_relay no_relay");
    EXPECT_TRUE(trip.is_intact);
  }
  void expect_every_path(const RoundTrip& trip) {
    DeviceBuffer plain(driver(), kSize);
    const RoundTrip usual = round_trip(plain.at());
    EXPECT_EQ(usual.up, "accelerated");
    EXPECT_GT(std::popcount(usual.up_via), 2);
    EXPECT_EQ(trip.up + " " + trip.down, usual.up + " " + usual.down);
    EXPECT_EQ(trip.up_via, usual.up_via);
    EXPECT_EQ(trip.down_via, usual.down_via);
    EXPECT_TRUE(trip.is_intact);
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HostBuffer> source_, landing_;
  CUstream stream_ = nullptr;

 private:
  uint64_t seed_ = 0;
};

TEST_F(AccessTest, ARangeThatIsMappedForItsOwnGpuAloneStaysNative) {
  const CUdeviceptr range = reserve(kSize);
  map(range, kSize, {access_by(0)});
  expect_direct(round_trip(range));
}

/// A relay that read it would make the context fail.
TEST_F(AccessTest, HostMemoryThatIsMappedForOneGpuStaysNative) {
  const CUdeviceptr range = reserve(kSize);
  CUmemLocation host{};
  host.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  map(range, kSize, {access_by(0), {host, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}}, host);
  const DeviceBuffer device(driver(), kSize);
  void* const source = reinterpret_cast<void*>(range);
  const Outcome outcome =
      engine_->submit({Direction::kHostToDevice, source, device.at(), kSize, stream_});
  EXPECT_STREQ(verdict_name(outcome), "not_linear");
  MUST(driver(), cuMemcpyHtoDAsync(device.at(), source, kSize, stream_));
  synchronize(stream_);
}

TEST_F(AccessTest, AGrantedRangeTakesThePathsOfPlainMemory) {
  const CUdeviceptr range = reserve(kSize);
  map(range, kSize, {access_by(0)});
  EXPECT_EQ(std::popcount(grant(*engine_, range, kSize)), gpus() - 1);
  expect_every_path(round_trip(range));
}

TEST_F(AccessTest, OnlyRelaysThatMayTouchEveryMappingTakePart) {
  const CUdeviceptr range = reserve(kSize);
  map(range, kSize / 2, {access_by(0), access_by(1), access_by(2)});
  map(range + kSize / 2, kSize / 2, {access_by(0), access_by(2), access_by(3)});
  const RoundTrip trip = round_trip(range);
  EXPECT_EQ(trip.up + " " + trip.down, "accelerated accelerated");
  EXPECT_EQ(trip.up_via, 0b0101u);
  EXPECT_EQ(trip.down_via, 0b0101u);
  EXPECT_TRUE(trip.is_intact);
}

TEST_F(AccessTest, ARelayThatMayOnlyReadHelpsCopiesToTheHost) {
  const CUdeviceptr range = reserve(kSize);
  map(range, kSize, {access_by(0), access_by(1, kReadOnly)});
  const RoundTrip trip = round_trip(range);
  EXPECT_EQ(trip.up, "no_relay");
  EXPECT_EQ(trip.down, "accelerated");
  EXPECT_EQ(trip.down_via, 0b0011u);
  EXPECT_TRUE(trip.is_intact);
}

TEST_F(AccessTest, WhatItsOwnGpuMayNotTouchIsLeftToTheDriver) {
  const CUdeviceptr range = reserve(2 * kSize);
  map(range, kSize / 2, {access_by(1)});
  map(range + kSize / 2, kSize / 2, {access_by(0), access_by(1)});
  const auto submit = [&](CUdeviceptr device) {
    return std::string(verdict_name(
        engine_->submit({Direction::kHostToDevice, source_->data(), device, kSize / 2, stream_})));
  };
  EXPECT_EQ(submit(range), "not_linear");
  EXPECT_EQ(submit(range + kSize / 4), "not_linear");
  EXPECT_EQ(submit(range + kSize / 2), "accelerated");
  EXPECT_EQ(submit(range + 3 * kSize / 4), "not_linear") << "nothing is mapped behind";
  EXPECT_EQ(grant(*engine_, range, kSize), 0u);
  synchronize(stream_);
}

// vLLM's sleep mode: the addresses stay, the memory behind them goes and comes back.
TEST_F(AccessTest, MemoryMayGoAndComeBackBetweenCopies) {
  const CUdeviceptr range = reserve(kSize);
  for (int round = 0; round < 3; ++round) {
    map(range, kSize, {access_by(0)});
    expect_direct(round_trip(range));
    ASSERT_NE(grant(*engine_, range, kSize), 0u);
    const RoundTrip trip = round_trip(range);
    EXPECT_EQ(trip.up + " " + trip.down, "accelerated accelerated");
    EXPECT_TRUE(trip.is_intact);
    unmap(range);
  }
}

// PyTorch's expandable segments: a range grows by small mappings, and tensors cross them.
TEST_F(AccessTest, ATensorMayCrossManyMappings) {
  const CUdeviceptr range = reserve(kSize);
  for (uint64_t at = 0; at < kSize; at += kGranuleBytes) {
    map(range + at, kGranuleBytes, {access_by(0)});
    if (at != 0) {
      EXPECT_NE(grant(*engine_, range + at, kGranuleBytes), 0u);
    }
  }
  expect_direct(
      round_trip(range + 512, kSize - kGranuleBytes));  // the first mapping is not the relays'
  const RoundTrip trip = round_trip(range + kGranuleBytes + 512, kSize - 2 * kGranuleBytes);
  EXPECT_EQ(trip.up + " " + trip.down, "accelerated accelerated");
  EXPECT_GT(std::popcount(trip.up_via), 2);
  EXPECT_TRUE(trip.is_intact);
}

TEST_F(AccessTest, APoolIsItsOwnGpusUntilItIsGranted) {
  const CUmemoryPool pool = new_pool();
  const CUdeviceptr memory = allocate(pool, kSize, stream_);
  expect_direct(round_trip(memory));
  EXPECT_EQ(std::popcount(grant(*engine_, pool, 0)), gpus() - 1);
  expect_every_path(round_trip(memory));
  free(memory, stream_);
  synchronize(stream_);
}

TEST_F(AccessTest, TheDriversOwnPoolsCanBeGranted) {
  EXPECT_EQ(engine_->grant_default_pools(), static_cast<size_t>(gpus()));
  CUdeviceptr memory = 0;
  cuMemAllocAsync_(&memory, kSize, stream_);
  expect_every_path(round_trip(memory));
  free(memory, stream_);
  synchronize(stream_);
}

// Freed behind the copy in the stream's order; the next owner of the addresses keeps its bytes. The
// driver refuses copies of freed memory, though the stream has not come so far: copy engines, which
// are given slices later, must not take it.
class FreedBehindTest : public AccessTest, public ::testing::WithParamInterface<MoverChoice> {};

INSTANTIATE_TEST_SUITE_P(Movers, FreedBehindTest,
                         ::testing::Values(MoverChoice::kAuto, MoverChoice::kCopyEngine));

TEST_P(FreedBehindTest, PoolMemoryMayBeFreedBehindItsCopy) {
  Options options = every_size();
  options.mover = GetParam();
  engine_ = nullptr;
  engine_ = open_engine(options);
  const CUmemoryPool pool = new_pool();
  grant(*engine_, pool, 0);
  HostBuffer first(driver(), kSize), second(driver(), kSize);
  first.fill_random(31);
  second.fill_random(32);
  const CUdeviceptr memory = allocate(pool, kSize, stream_);
  EXPECT_EQ(copy(Direction::kHostToDevice, first, memory, kSize), Verdict::kAccelerated);
  EXPECT_EQ(copy(Direction::kDeviceToHost, *source_, memory, kSize), Verdict::kAccelerated);
  free(memory, stream_);
  const CUdeviceptr again = allocate(pool, kSize, stream_);
  EXPECT_EQ(copy(Direction::kHostToDevice, second, again, kSize), Verdict::kAccelerated);
  EXPECT_EQ(copy(Direction::kDeviceToHost, *landing_, again, kSize), Verdict::kAccelerated);
  free(again, stream_);
  synchronize(stream_);
  EXPECT_EQ(std::memcmp(source_->data(), first.data(), kSize), 0);
  EXPECT_EQ(std::memcmp(landing_->data(), second.data(), kSize), 0);
}

TEST_F(AccessTest, ABatchMayMixKindsOfMemory) {
  constexpr uint64_t kPart = kSize / 4;
  const CUdeviceptr range = reserve(kPart);
  map(range, kPart, {access_by(0), access_by(1), access_by(2)});
  const CUmemoryPool pool = new_pool();
  const std::vector<CUmemAccessDesc> two = {access_by(2), access_by(3)};
  cuMemPoolSetAccess_(pool, two.data(), two.size());
  DeviceBuffer plain(driver(), kPart);
  const CUdeviceptr pooled = allocate(pool, kPart, stream_);
  source_->fill_random(33);
  const auto segments = [&](HostBuffer& host) {
    return std::vector<Segment>{{host.data(), range, kPart},
                                {host.data() + kPart, pooled, kPart},
                                {host.data() + 2 * kPart, plain.at(), kPart}};
  };
  const auto up = segments(*source_), down = segments(*landing_);
  const Outcome sent = engine_->submit(Batch{Direction::kHostToDevice, up, stream_});
  const Outcome fetched = engine_->submit(Batch{Direction::kDeviceToHost, down, stream_});
  free(pooled, stream_);
  synchronize(stream_);
  EXPECT_EQ(sent, Verdict::kAccelerated);
  EXPECT_EQ(sent.via, 0b0101u);
  EXPECT_EQ(fetched, Verdict::kAccelerated);
  EXPECT_EQ(std::memcmp(source_->data(), landing_->data(), 3 * kPart), 0);
}

TEST_F(AccessTest, MemoryOfAnotherGpuThanTheStreamsIsLeftToTheDriver) {
  const CUdeviceptr range = reserve(kSize);
  map(range, kSize, {access_by(0), access_by(1)});
  use_gpu(1);
  EXPECT_EQ(
      engine_->submit({Direction::kHostToDevice, source_->data(), range, kSize, new_stream()}),
      Verdict::kForeignContext);
  use_gpu(0);
}

TEST_F(AccessTest, WithoutRelaysNothingIsGranted) {
  Options options = every_size();
  options.relays.kind = RelayChoice::Kind::kNone;
  auto alone = open_engine(options);
  const CUdeviceptr range = reserve(kSize);
  map(range, kSize, {access_by(0)});
  EXPECT_EQ(grant(*alone, range, kSize), 0u);
  EXPECT_EQ(grant(*alone, new_pool(), 0), 0u);
  EXPECT_EQ(alone->grant_default_pools(), 0u);
  expect_direct(round_trip(range));
}

}  // namespace
}  // namespace braid::multipath
