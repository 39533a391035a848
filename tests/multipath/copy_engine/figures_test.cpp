// What the copy-engine mover reaches in virtual time on the emulated h20x8, and the paper's
// comparisons. The figures are outputs of the link model.
#include <cstdio>

#include "multipath/copy_engine/fixture.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMiB = uint64_t{1} << 20;

class CopyEngineFiguresTest : public CopyEngineTest {
 protected:
  double copy_us(Direction direction, HostBuffer& host, const DeviceBuffer& device,
                 uint64_t size_bytes, int paths, CUstream stream) {
    const CUevent begin = new_event(), end = new_event();
    MUST(driver(), cuEventRecord(begin, stream));
    EXPECT_EQ(submit(direction, host, device, size_bytes, stream, 0, paths), Verdict::kAccelerated);
    MUST(driver(), cuEventRecord(end, stream));
    synchronize(stream);
    return elapsed_us(begin, end);
  }
};

TEST_F(CopyEngineFiguresTest, EveryPathAddsUntilTheSocketLinkIsFull) {
  open();
  HostBuffer host(driver(), kGiB);
  DeviceBuffer device(driver(), kGiB);
  const CUstream stream = new_stream();
  for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
    std::vector<double> gbps;
    for (int paths = 1; paths <= gpus(); ++paths) {
      gbps.push_back(kGiB / copy_us(direction, host, device, kGiB, paths, stream) / 1e3);
      std::printf("copy engines, 1 GiB %s, %d paths: %.1f GB/s\n",
                  direction == Direction::kHostToDevice ? "H2D" : "D2H", paths, gbps.back());
    }
    for (int paths = 1; paths < 4; ++paths)
      EXPECT_GT(gbps[paths], gbps[paths - 1] * 1.2) << paths + 1 << " paths of one socket";
    EXPECT_GT(gbps.back(), gbps.front() * 4);
  }
}

TEST_F(CopyEngineFiguresTest, SizesFromFourMegabytesUp) {
  open();
  HostBuffer host(driver(), kGiB);
  DeviceBuffer device(driver(), kGiB);
  const CUstream stream = new_stream();
  for (uint64_t size = 4 * kMiB; size <= kGiB; size *= 4) {
    const double to_us = copy_us(Direction::kHostToDevice, host, device, size, 0, stream);
    const double from_us = copy_us(Direction::kDeviceToHost, host, device, size, 0, stream);
    std::printf("copy engines, %4llu MiB: H2D %.1f, D2H %.1f GB/s\n",
                static_cast<unsigned long long>(size / kMiB), size / to_us / 1e3,
                size / from_us / 1e3);
    if (size >= 64 * kMiB) {
      EXPECT_GT(size / to_us / 1e3, 2 * 53.0);
    }
  }
}

}  // namespace
}  // namespace braid::multipath
