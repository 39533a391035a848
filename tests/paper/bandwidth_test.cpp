// MMA section 5.1.1: what several paths add (figures 8 and 9).
#include <algorithm>

#include "paper/fixture.h"

namespace braid::paper {
namespace {

const char* name_of(Direction direction) {
  return direction == Direction::kHostToDevice ? "H2D" : "D2H";
}

class PaperBandwidthTest : public PaperTest {
 protected:
  void SetUp() override {
    PaperTest::SetUp();
    if (IsSkipped()) return;
    engine_ = open_engine(options());
    host_ = std::make_unique<HostBuffer>(driver(), kGiB);
    device_ = std::make_unique<DeviceBuffer>(driver(), kGiB);
    stream_ = new_stream();
  }
  double copy_gbps(Direction direction, uint64_t size_bytes) {
    return gbps(size_bytes,
                wait_us(copy(*engine_, direction, *host_, *device_, size_bytes, stream_)));
  }
  double direct_gbps(Direction direction, uint64_t size_bytes) {
    return gbps(size_bytes,
                wait_us(direct(*engine_, direction, *host_, *device_, size_bytes, stream_)));
  }

  CUstream stream_ = nullptr;
  std::unique_ptr<HostBuffer> host_;
  std::unique_ptr<DeviceBuffer> device_;
  std::unique_ptr<Engine> engine_;
};
BRAID_BOTH_MOVERS(PaperBandwidthTest);

// Figure 9. The seventh and the eighth path share a socket link that six fill already.
TEST_P(PaperBandwidthTest, SaturatesNearSixPaths) {
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
    std::vector<double> reached;
    std::string line;
    for (int paths = 1; paths <= gpus(); ++paths) {
      engine_->limit_paths(paths);
      reached.push_back(paths == 1 ? direct_gbps(direction, kGiB / 2)
                                   : copy_gbps(direction, kGiB / 2));
      line += text(" %.0f", reached.back());
    }
    figure("figure 9", "bandwidth saturates with six paths",
           text("%s by paths:%s GB/s", name_of(direction), line.c_str()));
    for (int paths = 1; paths < 6; ++paths)
      EXPECT_GT(reached[paths], 1.04 * reached[paths - 1]) << paths + 1 << " paths still add";
    EXPECT_LT(reached[7], 1.06 * reached[5]) << "the socket link is full with six";
    for (int paths = 2; paths <= gpus(); ++paths)
      EXPECT_GT(reached[paths - 1], 1.5 * kNativeGbps) << paths;
  }
}

// Figure 8, the right end of the curve: four times native in the paper.
TEST_P(PaperBandwidthTest, OneGiBIsSeveralTimesNative) {
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
    const double reached = copy_gbps(direction, kGiB);
    figure("figure 8", "245 GB/s at 1 GB, 4.62 times the native 53 GB/s",
           text("%s %.1f GB/s, %.2f times", name_of(direction), reached, reached / kNativeGbps));
    EXPECT_GT(reached, 4 * kNativeGbps);
    EXPECT_LT(reached, gpus() * kNativeGbps);
  }
  EXPECT_EQ(engine_->collect(5000).size(), 2u * static_cast<size_t>(gpus()))
      << "every link carries its share, both ways";
}

// Figure 8, the rest of it: from about 10 MB up the paper gains.
TEST_P(PaperBandwidthTest, GainsFromTenMegabytesUp) {
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
    std::string line;
    double before = 0;
    for (uint64_t size = 4 * kMiB; size <= kGiB / 4; size *= 4) {
      const double reached = copy_gbps(direction, size);
      line += text(" %d MiB %.0f", static_cast<int>(size / kMiB), reached);
      EXPECT_GT(reached, before) << size;
      if (size > 10 * kMiB) {
        EXPECT_GT(reached, kNativeGbps) << size;
      }
      before = reached;
    }
    figure("figure 8", "more than native's 53 GB/s from about 10 MB up",
           text("%s%s GB/s", name_of(direction), line.c_str()));
  }
}

// Section 3.4.3 has relay buffers for both directions; the paper shows no figure.
TEST_P(PaperBandwidthTest, BothDirectionsAtOnceShareTheRelays) {
  constexpr uint64_t kSize = kGiB / 4;
  HostBuffer back(driver(), kSize);
  DeviceBuffer out(driver(), kSize);
  const Span there = load(*engine_, *host_, *device_, kSize, stream_);
  const Span home = copy(*engine_, Direction::kDeviceToHost, back, out, kSize, new_stream());
  const double there_us = wait_us(there), home_us = wait_us(home);
  const double total = gbps(2 * kSize, std::max(there_us, home_us));
  figure("section 3.4.3", "no figure",
         text("H2D %.1f and D2H %.1f GB/s, together %.1f", gbps(kSize, there_us),
              gbps(kSize, home_us), total));
  EXPECT_LT(std::max(there_us, home_us), 1.5 * std::min(there_us, home_us)) << "neither starves";
  EXPECT_GT(total, 2 * 97.0) << "one link both ways: 97 GB/s";
}

}  // namespace
}  // namespace braid::paper
