// A relay that is busy starts its kernel long after the transfer has ended without it. By then the
// program may have freed everything: the late kernel touches memory of braid's own only. Each TEST
// sets its faults before the driver starts, and is its own process.
#include <cstdlib>
#include <cstring>

#include "multipath/granting.h"
#include "multipath/memory_fixture.h"

namespace braid::multipath {
namespace {

using test::access_by;
using test::HostBuffer;

constexpr uint64_t kSize = 64 << 20;
constexpr int kBusyGpu = 3;

class LifetimeTest : public test::MemoryTest {
 protected:
  void SetUp() override {
    setenv("BRAID_FAULTS", R"({"busy": [{"gpu": 3, "from_us": 20000, "to_us": 100000}]})", 1);
    ServerTest::SetUp();
    Options options = every_size();
    options.mover = MoverChoice::kKernel;
    engine_ = open_engine(options);
    stream_ = new_stream();
    begin_ = new_event();
    end_ = new_event();
    MUST(driver(), cuEventRecord(begin_, stream_));
    enter_busy_spell();
  }

  double now_us() {
    MUST(driver(), cuEventRecord(end_, stream_));
    synchronize(stream_);
    return elapsed_us(begin_, end_);
  }
  void pass_time() {
    HostBuffer host(driver(), kSize);
    test::DeviceBuffer device(driver(), kSize);
    for (int copy = 0; copy < 10; ++copy)
      MUST(driver(), cuMemcpyHtoDAsync(device.at(), host.data(), kSize, stream_));
  }
  void enter_busy_spell() {
    while (now_us() < 25000) pass_time();
  }
  // The relay's kernel starts now, whatever is left of the memory; and the relay lives on.
  void let_the_late_kernel_run() {
    ASSERT_LT(now_us(), 90000) << "the busy relay held the transfer up";
    while (now_us() < 110000) pass_time();  // until the busy spell is over
    HostBuffer host(driver(), kSize), landing(driver(), kSize);
    host.fill_random(52);
    test::DeviceBuffer device(driver(), kSize);
    const Outcome outcome =
        engine_->submit({Direction::kHostToDevice, host.data(), device.at(), kSize, stream_});
    EXPECT_EQ(outcome, Verdict::kAccelerated);
    EXPECT_NE(outcome.via & (1u << kBusyGpu), 0u) << "the late kernel has ended its relay";
    MUST(driver(), cuMemcpyDtoHAsync(landing.data(), device.at(), kSize, stream_));
    synchronize(stream_);
    EXPECT_EQ(std::memcmp(host.data(), landing.data(), kSize), 0);
  }

  // A transfer in one piece, or in many that lists describe, in which the busy relay was to help.
  void transfer(uint8_t* host, CUdeviceptr device, uint64_t segment_bytes, Direction direction) {
    std::vector<Segment> segments;
    for (uint64_t at = 0; at < kSize; at += segment_bytes)
      segments.push_back({host + at, device + at, segment_bytes});
    if (segments.size() > 1) std::swap(segments.front(), segments.back());
    const Outcome outcome = engine_->submit(Batch{direction, segments, stream_});
    ASSERT_EQ(outcome, Verdict::kAccelerated);
    ASSERT_NE(outcome.via & (1u << kBusyGpu), 0u);
    synchronize(stream_);
  }

  void unmap_behind_a_transfer(uint64_t segment_bytes, Direction direction) {
    HostBuffer host(driver(), kSize);
    const CUdeviceptr range = reserve(kSize);
    map(range, kSize, {access_by(0)});
    ASSERT_NE(grant(*engine_, range, kSize), 0u);
    transfer(host.data(), range, segment_bytes, direction);
    unmap(range);
    let_the_late_kernel_run();
  }

  std::unique_ptr<Engine> engine_;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr, end_ = nullptr;
};

TEST_F(LifetimeTest, ARangeMayBeUnmappedBehindACopy) {
  unmap_behind_a_transfer(kSize, Direction::kHostToDevice);
}
TEST_F(LifetimeTest, ARangeMayBeUnmappedBehindACopyToTheHost) {
  unmap_behind_a_transfer(kSize, Direction::kDeviceToHost);
}
TEST_F(LifetimeTest, ARangeMayBeUnmappedBehindABatch) {
  unmap_behind_a_transfer(16 << 10, Direction::kHostToDevice);
}

TEST_F(LifetimeTest, PoolMemoryMayBeFreedBehindACopy) {
  HostBuffer host(driver(), kSize);
  const CUmemoryPool pool = new_pool();
  ASSERT_NE(grant(*engine_, pool, 0), 0u);
  const CUdeviceptr memory = allocate(pool, kSize, stream_);
  transfer(host.data(), memory, kSize, Direction::kHostToDevice);
  free(memory, stream_);
  synchronize(stream_);
  let_the_late_kernel_run();
}

}  // namespace
}  // namespace braid::multipath
