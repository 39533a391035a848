// Nothing is slower than native, in virtual time, with either mover on either server that braid is
// measured on. The figures are outputs of the link model; every byte is verified.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <ostream>
#include <random>

#include "multipath/cost_file.h"
#include "multipath/native_copy.h"
#include "support/server.h"

namespace braid::multipath {

struct Setting {
  const char* name;
  MoverChoice mover;
  const char* profile;
  int gpus;
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr Direction kBothWays[] = {Direction::kHostToDevice, Direction::kDeviceToHost};

class NoSlowerTest : public test::ServerTest, public ::testing::WithParamInterface<Setting> {
 protected:
  void SetUp() override {
    choose_profile(GetParam().profile);
    ServerTest::SetUp();
    if (!IsSkipped() && gpus() != GetParam().gpus)
      GTEST_SKIP() << "this process is on another server";
  }

  // By the model and its defaults, as on a server that nobody has tuned.
  Options by_default() const {
    Options options;
    options.mover = GetParam().mover;
    options.costs = "none";
    return options;
  }
};

// Segments at random places of both ends, each place used once and no two next to each other.
class NoSlowerBatchTest : public NoSlowerTest {
 protected:
  void SetUp() override {
    NoSlowerTest::SetUp();
    if (IsSkipped()) return;
    stream_ = new_stream();
    host_ = std::make_unique<HostBuffer>(driver(), kSpan);
    host_->fill_random(41);
    device_ = std::make_unique<DeviceBuffer>(driver(), kSpan);
  }

  std::vector<Segment> scatter(uint64_t size_bytes, uint64_t segment_bytes) const {
    std::vector<uint64_t> host(size_bytes / segment_bytes);
    std::iota(host.begin(), host.end(), 0);
    std::vector<uint64_t> device = host;
    std::mt19937_64 random(7);
    std::shuffle(host.begin(), host.end(), random);
    std::shuffle(device.begin(), device.end(), random);
    std::vector<Segment> segments;
    for (size_t i = 0; i < host.size(); ++i)
      segments.push_back({host_->data() + host[i] * 2 * segment_bytes,
                          device_->at(device[i] * 2 * segment_bytes), segment_bytes});
    return segments;
  }

  void copy_natively(const Batch& batch) const {
    std::vector<CUdeviceptr> to, from;
    std::vector<size_t> sizes;
    for (const Segment& segment : batch.segments()) {
      const auto host = reinterpret_cast<CUdeviceptr>(segment.host);
      const bool up = batch.direction == Direction::kHostToDevice;
      to.push_back(up ? segment.device : host);
      from.push_back(up ? host : segment.device);
      sizes.push_back(segment.size_bytes);
    }
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    size_t first = 0, failed = 0;
    MUST(driver(), copy_batch(to.data(), from.data(), sizes.data(), sizes.size(), &attributes,
                              &first, 1, &failed, batch.stream));
  }

  // What the batch takes; natively without an engine, or when the engine declines it.
  double copy_us(Engine* engine, const Batch& batch, bool& is_native) const {
    const CUevent begin = new_event(), end = new_event();
    MUST(driver(), cuEventRecord(begin, stream_));
    is_native = engine == nullptr || engine->submit(batch) != Verdict::kAccelerated;
    if (is_native) copy_natively(batch);
    MUST(driver(), cuEventRecord(end, stream_));
    synchronize(stream_);
    return elapsed_us(begin, end);
  }

  // The other end of each segment is cleared before, and holds the same bytes after.
  double checked_copy_us(Engine* engine, const Batch& batch, bool& is_native) const {
    const bool up = batch.direction == Direction::kHostToDevice;
    std::vector<uint8_t> before(kSpan), after(kSpan);
    if (up) {
      MUST(driver(), cuMemsetD8(device_->at(), 0, kSpan));
      std::memcpy(before.data(), host_->data(), kSpan);
    } else {
      MUST(driver(), cuMemcpyDtoH(before.data(), device_->at(), kSpan));
      std::memset(host_->data(), 0, kSpan);
    }
    MUST(driver(), cuCtxSynchronize());
    const double took_us = copy_us(engine, batch, is_native);
    if (up)
      MUST(driver(), cuMemcpyDtoH(after.data(), device_->at(), kSpan));
    else
      std::memcpy(after.data(), host_->data(), kSpan);
    for (const Segment& segment : batch.segments()) {
      const uint64_t at_host = static_cast<uint8_t*>(segment.host) - host_->data();
      const uint64_t at_device = segment.device - device_->at();
      const int difference = std::memcmp(&after[up ? at_device : at_host],
                                         &before[up ? at_host : at_device], segment.size_bytes);
      EXPECT_EQ(difference, 0) << at_host;
      if (difference != 0) break;
    }
    return took_us;
  }

  static constexpr uint64_t kSpan = 128 * kMiB;
  CUstream stream_ = nullptr;
  std::unique_ptr<HostBuffer> host_;
  std::unique_ptr<DeviceBuffer> device_;
};

TEST_P(NoSlowerBatchTest, NoBatchIsSlowerThanNative) {
  auto engine = open_engine(by_default());
  for (const uint64_t segment_bytes : {8192, 16384, 65536})
    for (const uint64_t size_bytes : {2 * kMiB, 16 * kMiB, 64 * kMiB}) {
      const std::vector<Segment> segments = scatter(size_bytes, segment_bytes);
      for (const Direction direction : kBothWays) {
        const Batch batch{direction, segments, stream_};
        bool is_native = false;
        const double native_us = checked_copy_us(nullptr, batch, is_native);
        const double braid_us = checked_copy_us(engine.get(), batch, is_native);
        std::printf("%s, %s %3d MiB in %2d KiB: %.2f times native%s\n", GetParam().name,
                    direction == Direction::kHostToDevice ? "h2d" : "d2h",
                    static_cast<int>(size_bytes / kMiB), static_cast<int>(segment_bytes / 1024),
                    native_us / braid_us, is_native ? ", native" : "");
        EXPECT_LE(braid_us, native_us);
        if (GetParam().mover != MoverChoice::kCopyEngine && size_bytes > 2 * kMiB) {
          EXPECT_GT(native_us / braid_us, 2) << "and by kernels these gain";
        }
      }
    }
}

// A copy to or from each GPU at once: relays add nothing, and what they carry for others stands
// before a link's own work.
class NoSlowerEveryGpuTest : public NoSlowerTest {
 protected:
  static constexpr uint64_t kSize = 256 * kMiB;
  struct Copy {
    std::unique_ptr<HostBuffer> host;
    std::unique_ptr<DeviceBuffer> device;
    CUstream stream = nullptr;
    CUevent end = nullptr;
  };

  void SetUp() override {
    NoSlowerTest::SetUp();
    if (IsSkipped()) return;
    for (int gpu = 0; gpu < gpus(); ++gpu) {
      use_gpu(gpu);
      copies_.push_back({std::make_unique<HostBuffer>(driver(), kSize),
                         std::make_unique<DeviceBuffer>(driver(), kSize), new_stream(),
                         new_event()});
    }
    use_gpu(0);
  }

  // Until the last of them has ended, from an event that all wait for.
  double all_us(Engine* engine, Direction direction) {
    use_gpu(0);
    const CUevent begin = new_event(), end = new_event();
    MUST(driver(), cuEventRecord(begin, copies_[0].stream));
    for (int gpu = 0; gpu < gpus(); ++gpu) {
      use_gpu(gpu);
      const Copy& copy = copies_[gpu];
      MUST(driver(), cuStreamWaitEvent(copy.stream, begin, 0));
      const Batch all{direction, copy.host->data(), copy.device->at(), kSize, copy.stream};
      const bool is_carried = engine != nullptr && engine->submit(all) == Verdict::kAccelerated;
      if (!is_carried) {
        EXPECT_EQ(copy_natively(driver(), all), CUDA_SUCCESS);
      }
      MUST(driver(), cuEventRecord(copy.end, copy.stream));
    }
    use_gpu(0);
    for (const Copy& copy : copies_)
      MUST(driver(), cuStreamWaitEvent(copies_[0].stream, copy.end, 0));
    MUST(driver(), cuEventRecord(end, copies_[0].stream));
    synchronize(copies_[0].stream);
    return elapsed_us(begin, end);
  }

  void check(Direction direction) {
    std::vector<uint8_t> seen(kSize), expected(kSize);
    for (int gpu = 0; gpu < gpus(); ++gpu) {
      use_gpu(gpu);
      Copy& copy = copies_[gpu];
      MUST(driver(), cuMemcpyDtoH(seen.data(), copy.device->at(), kSize));
      EXPECT_EQ(std::memcmp(seen.data(), copy.host->data(), kSize), 0)
          << gpu << " " << static_cast<int>(direction);
    }
  }

  std::vector<Copy> copies_;
};

// From the second time on: the first of them cannot know of those that follow (link_contention.h).
TEST_P(NoSlowerEveryGpuTest, CopiesToEveryGpuAtOnceAreAsFastAsNative) {
  auto engine = open_engine(by_default());
  for (const Direction direction : kBothWays) {
    (void)all_us(engine.get(), direction);
    // The end that is written is cleared or changed between the two.
    for (int gpu = 0; gpu < gpus(); ++gpu) copies_[gpu].host->fill_random(100 + gpu);
    const double native_us = all_us(nullptr, Direction::kHostToDevice);
    double braid_us = 0;
    if (direction == Direction::kHostToDevice) {
      for (int gpu = 0; gpu < gpus(); ++gpu) copies_[gpu].host->fill_random(200 + gpu);
      braid_us = all_us(engine.get(), direction);
      std::printf("%s, h2d: %.3f of native\n", GetParam().name, native_us / braid_us);
      EXPECT_GE(native_us / braid_us, 0.98);
    } else {
      const double native_back_us = all_us(nullptr, direction);
      for (const Copy& copy : copies_) std::memset(copy.host->data(), 0, kSize);
      braid_us = all_us(engine.get(), direction);
      std::printf("%s, d2h: %.3f of native\n", GetParam().name, native_back_us / braid_us);
      EXPECT_GE(native_back_us / braid_us, 0.98);
    }
    check(direction);
  }
}

constexpr Setting kSettings[] = {
    {"KernelOnH20x8", MoverChoice::kKernel, "h20x8", 8},
    {"CopyEngineOnH20x8", MoverChoice::kCopyEngine, "h20x8", 8},
    {"KernelOnH200x4", MoverChoice::kKernel, "h200x4", 4},
    {"CopyEngineOnH200x4", MoverChoice::kCopyEngine, "h200x4", 4},
    {"DefaultOnH200x4", MoverChoice::kAuto, "h200x4", 4},
};
std::string name_of(const ::testing::TestParamInfo<Setting>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Movers, NoSlowerBatchTest, ::testing::ValuesIn(kSettings), name_of);
// Kernels read host memory more slowly than copy engines do: this is no promise of theirs alone.
INSTANTIATE_TEST_SUITE_P(Movers, NoSlowerEveryGpuTest,
                         ::testing::Values(kSettings[1], kSettings[3], kSettings[4]), name_of);

}  // namespace
}  // namespace braid::multipath
