// MMA section 5.1.2, figure 11: pulling against shares that are settled in advance, over two paths,
// with and without background traffic on the relay's link.
#include <optional>

#include "paper/fixture.h"
#include "paper/static_split.h"

namespace braid::paper {
namespace {

constexpr uint64_t kSize = kGiB / 4;

class PaperBalanceTest : public PaperTest {
 protected:
  struct Times {
    double idle_us;
    double busy_us;
  };
  using Submit = std::function<Verdict(void* host, CUdeviceptr device, CUstream stream)>;

  void SetUp() override {
    PaperTest::SetUp();
    if (IsSkipped()) return;
    host_ = std::make_unique<HostBuffer>(driver(), kSize);
    host_->fill_random(11);
    small_ = std::make_unique<HostBuffer>(driver(), kNativeCopyBytes);
    device_ = std::make_unique<DeviceBuffer>(driver(), kSize);
    traffic_ = site(1, kNativeCopyBytes);
    stream_ = new_stream();
  }

  Times measure(const char* name, const Submit& submit) {
    const auto timed = [&] {
      return span(stream_, [&] {
        ASSERT_EQ(submit(host_->data(), device_->at(), stream_), Verdict::kAccelerated);
      });
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
    mover.reset();
    endpoints.clear();
    Policy policy;
    policy.yields = false;
    policy.split = {shares.direct, shares.relayed};
    open(policy);
    std::unique_ptr<StaticSplit> made;
    if (is_kernel())
      made = std::make_unique<KernelSplit>(driver(), *endpoints[0], *endpoints[1], shares);
    else
      made = std::make_unique<CopyEngineSplit>(*mover, *endpoints[0], *endpoints[1]);
    return measure(name, [&](void* host, CUdeviceptr device, CUstream stream) {
      return made->submit(host, device, kSize, stream);
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
      measure("dynamic", [&](void* host, CUdeviceptr device, CUstream stream) -> Verdict {
        return engine->submit({Direction::kHostToDevice, host, device, kSize, stream});
      });
  engine.reset();
  const Times even = split("static 1:1", {1, 1});
  const Times uneven = split("static 1:2", {2, 1});
  EXPECT_LT(dynamic.idle_us, 1.05 * even.idle_us);
  EXPECT_LT(dynamic.busy_us, 1.05 * uneven.busy_us);
  EXPECT_GT(even.busy_us, 1.2 * dynamic.busy_us) << "1:1 waits for the congested path";
  EXPECT_GT(uneven.idle_us, 1.2 * dynamic.idle_us) << "1:2 leaves the idle one unused";
}

}  // namespace
}  // namespace braid::paper
