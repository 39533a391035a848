// MMA section 5.1.3, table 2: while every GPU copies directly, relays would add nothing, and direct
// priority leaves NVLink to others.
#include "paper/fixture.h"

namespace braid::paper {
namespace {

constexpr uint64_t kSize = 128 * kMiB;
constexpr uint64_t kPeerSize = 256 * kMiB;
constexpr int kFrom = 2, kTo = 3;

class PaperNvlinkTest : public PaperTest {
 protected:
  void SetUp() override {
    PaperTest::SetUp();
    if (IsSkipped()) return;
    host_ = std::make_unique<HostBuffer>(driver(), kSize);
    for (int gpu = 0; gpu < gpus(); ++gpu) sites_.push_back(site(gpu, kSize));
    from_ = site(kFrom, kPeerSize);
    to_ = site(kTo, kPeerSize);
  }

  double peer_gbps() {
    use_gpu(kFrom);
    const Span made = span(from_->stream, [&] {
      MUST(driver(), cuMemcpyPeerAsync(to_->device.at(), context(kTo), from_->device.at(),
                                       context(kFrom), kPeerSize, from_->stream));
    });
    const double us = wait_us(made);
    use_gpu(0);
    return gbps(kPeerSize, us);
  }

  // Beside eight copies, each to a GPU of its own.
  double peer_gbps_beside(const std::function<Verdict(const Site& to)>& submit) {
    for (const auto& to : sites_) EXPECT_EQ(submit(*to), Verdict::kAccelerated);
    const double reached = peer_gbps();
    for (const auto& to : sites_) synchronize(to->stream);
    return reached;
  }

  double with_engine(bool direct_first) {
    Options chosen = options();
    chosen.direct_first = direct_first;
    auto engine = open_engine(chosen);
    return peer_gbps_beside([&](const Site& to) -> Verdict {
      return engine->submit(
          {Direction::kHostToDevice, host_->data(), to.device.at(), kSize, to.stream});
    });
  }

  std::unique_ptr<HostBuffer> host_;
  std::vector<std::unique_ptr<Site>> sites_;
  std::unique_ptr<Site> from_, to_;
};
BRAID_BOTH_MOVERS(PaperNvlinkTest);

TEST_P(PaperNvlinkTest, DirectPriorityLeavesNvlinkFree) {
  auto engine =
      open_engine(options());  // peer access, without which the copy goes through the host
  const double alone = peer_gbps();
  engine.reset();
  const double with = with_engine(true);
  const double without = with_engine(false);
  figure("table 2",
         "peer copy alone 367.6, beside eight copies 367.3, no direct priority 330.6 GB/s",
         text("%.1f, %.1f, %.1f", alone, with, without));
  EXPECT_GE(with, 0.98 * alone);
  EXPECT_LT(without, 0.98 * with);
}

}  // namespace
}  // namespace braid::paper
