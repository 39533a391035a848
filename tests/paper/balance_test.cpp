// MMA section 5.1.2, figure 11: pulling against shares that are settled in advance, over two paths,
// with and without background traffic on the relay's link.
#include <cstring>

#include "paper/fixture.h"
#include "paper/static_split.h"

namespace braid::paper {
namespace {

constexpr uint64_t kSize = kGiB / 4;
constexpr int kRelay = 1;
constexpr double kKernelGbps = 49;  // profiles/h20x8.json: kernel_host_read_gbps

class PaperBalanceTest : public PaperTest {
 protected:
  struct Times {
    double idle_us;
    double busy_us;
  };
  using Enqueue = std::function<void(uint8_t* host, CUdeviceptr device, CUstream stream)>;

  void SetUp() override {
    PaperTest::SetUp();
    if (IsSkipped()) return;
    host_ = std::make_unique<HostBuffer>(driver(), kSize);
    host_->fill_random(11);
    small_ = std::make_unique<HostBuffer>(driver(), kNativeCopyBytes);
    device_ = std::make_unique<DeviceBuffer>(driver(), kSize);
    reach(kRelay, 0);
    traffic_ = site(kRelay, kNativeCopyBytes);
    stream_ = new_stream();
  }

  Times measure(const char* name, const Enqueue& enqueue) {
    const auto timed = [&] {
      return span(stream_, [&] { enqueue(host_->data(), device_->at(), stream_); });
    };
    Times times{};
    wait_us(timed());  // wakes the paths up
    times.idle_us = wait_us(timed());
    const Span background = native(*small_, *traffic_, 120);
    times.busy_us = wait_us(timed());
    wait_us(background);
    expect_bytes();
    figure("figure 11", "1:1 is right without traffic, 1:2 with it, dynamic both times",
           text("256 MiB, %s: %.2f ms, with background traffic %.2f ms", name, times.idle_us / 1e3,
                times.busy_us / 1e3));
    return times;
  }

  // Through the split's own paths: nobody else verifies it.
  void expect_bytes() {
    std::vector<uint8_t> seen(kSize);
    MUST(driver(), cuMemcpyDtoH(seen.data(), device_->at(), kSize));
    EXPECT_EQ(std::memcmp(seen.data(), host_->data(), kSize), 0);
    MUST(driver(), cuMemsetD8Async(device_->at(), 0, kSize, stream_));
    synchronize(stream_);
  }

  Times split(const char* name, Shares shares) {
    StaticSplit made(driver(), context(kRelay), shares);
    return measure(name, [&](uint8_t* host, CUdeviceptr device, CUstream stream) {
      made.enqueue(host, device, kSize, stream);
    });
  }

  std::unique_ptr<HostBuffer> host_, small_;
  std::unique_ptr<DeviceBuffer> device_;
  std::unique_ptr<Site> traffic_;
  CUstream stream_ = nullptr;
};
BRAID_BOTH_MOVERS(PaperBalanceTest);

TEST_P(PaperBalanceTest, DynamicIsAsGoodAsTheRightSplitInBothCases) {
  Options competing = options();
  competing.yields = false;
  auto engine = open_engine(competing);
  engine->limit_paths(2);
  const Times dynamic =
      measure(is_kernel() ? "dynamic" : "the plan",
              [&](uint8_t* host, CUdeviceptr device, CUstream stream) {
                ASSERT_EQ(engine->submit({Direction::kHostToDevice, host, device, kSize, stream}),
                          Verdict::kAccelerated);
              });
  engine.reset();
  const Times even = split("static 1:1", {1, 1});
  const Times uneven = split("static 1:2", {2, 1});
  // The splits are made of the driver's copies, and a kernel reaches less of a link than they do.
  const double slack = 1.05 * (is_kernel() ? kNativeGbps / kKernelGbps : 1);
  EXPECT_LT(dynamic.idle_us, slack * even.idle_us);
  if (!is_kernel()) GTEST_SKIP() << kNotMet;
  EXPECT_LT(dynamic.busy_us, slack * uneven.busy_us);
  EXPECT_GT(even.busy_us, 1.2 * dynamic.busy_us) << "1:1 waits for the congested path";
  EXPECT_GT(uneven.idle_us, 1.2 * dynamic.idle_us) << "1:2 leaves the idle one unused";
}

}  // namespace
}  // namespace braid::paper
