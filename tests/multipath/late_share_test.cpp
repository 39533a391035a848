// A relay's link that other programs use: braid does not know of them until a copy is late there.
#include <cstring>

#include "multipath/backoff.h"
#include "support/gate.h"
#include "support/leaping_clock.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::Gate;
using test::HostBuffer;

constexpr uint64_t kSize = 64 << 20;
constexpr int kOthersCopies = 40;

class LateShareTest : public test::ServerTest, public ::testing::WithParamInterface<Direction> {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    altered_ = driver();
    clock_ = std::make_unique<test::LeapingClock>(*driver().clock);
    altered_.clock = clock_.get();
    Options options;
    options.costs = "none";
    options.relays = {RelayChoice::Kind::kList, {1}};
    auto opened = Engine::open(altered_, options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    engine_ = std::move(opened).value();
    use_gpu(1);
    others_host_ = std::make_unique<HostBuffer>(driver(), kSize);
    others_device_ = std::make_unique<DeviceBuffer>(driver(), kSize);
    others_stream_ = new_stream();
    use_gpu(0);
    host_ = std::make_unique<HostBuffer>(driver(), kSize);
    device_ = std::make_unique<DeviceBuffer>(driver(), kSize);
    stream_ = new_stream();
  }

  CUresult native(CUdeviceptr device, void* host, CUstream stream) {
    return GetParam() == Direction::kHostToDevice
               ? driver().cuMemcpyHtoDAsync(device, host, kSize, stream)
               : driver().cuMemcpyDtoHAsync(host, device, kSize, stream);
  }

  // The other program's copies over GPU 1's link, from the event on: none of braid's business.
  void use_link_from(CUevent begin) {
    use_gpu(1);
    MUST(driver(), cuStreamWaitEvent(others_stream_, begin, 0));
    for (int i = 0; i < kOthersCopies; ++i)
      test::must(driver(), native(others_device_->at(), others_host_->data(), others_stream_),
                 "another program's copy");
    use_gpu(0);
  }

  enum class Link { kQuiet, kInUse };

  // {microseconds, carried}; by the driver where braid declines. All is enqueued before it begins.
  std::pair<double, bool> copy(Link link, bool through_braid = true) {
    const bool up = GetParam() == Direction::kHostToDevice;
    host_->fill_random(++seed_);
    std::vector<uint8_t> sent(host_->data(), host_->data() + kSize), seen(kSize);
    if (up) {
      MUST(driver(), cuMemsetD8(device_->at(), 0, kSize));
    } else {
      MUST(driver(), cuMemcpyHtoD(device_->at(), sent.data(), kSize));
      std::memset(host_->data(), 0, kSize);
    }
    MUST(driver(), cuStreamSynchronize(CU_STREAM_LEGACY));
    const CUevent begin = new_event(), end = new_event();
    Gate gate(driver());
    gate.hold(stream_);
    MUST(driver(), cuEventRecord(begin, stream_));
    if (link == Link::kInUse) use_link_from(begin);
    const Batch all{GetParam(), host_->data(), device_->at(), kSize, stream_};
    const bool is_carried = through_braid && engine_->submit(all) == Verdict::kAccelerated;
    if (!is_carried) test::must(driver(), native(device_->at(), host_->data(), stream_), "a copy");
    MUST(driver(), cuEventRecord(end, stream_));
    gate.open();
    synchronize(stream_);
    synchronize(others_stream_);
    if (up)
      MUST(driver(), cuMemcpyDtoH(seen.data(), device_->at(), kSize));
    else
      std::memcpy(seen.data(), host_->data(), kSize);
    EXPECT_EQ(std::memcmp(seen.data(), sent.data(), kSize), 0);
    return {elapsed_us(begin, end), is_carried};
  }

  cuda::Driver altered_;
  std::unique_ptr<test::LeapingClock> clock_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<HostBuffer> host_, others_host_;
  std::unique_ptr<DeviceBuffer> device_, others_device_;
  CUstream stream_ = nullptr, others_stream_ = nullptr;
  uint64_t seed_ = 0;
};

TEST_P(LateShareTest, ALinkThatOthersUseIsLeftAloneAfterOneLateCopy) {
  const double native_us = copy(Link::kInUse, false).first;
  EXPECT_LT(copy(Link::kQuiet).first, 0.7 * native_us);
  const auto [late_us, was_carried] = copy(Link::kInUse);
  EXPECT_TRUE(was_carried);
  EXPECT_GT(late_us, native_us);
  for (int i = 0; i < 3; ++i) EXPECT_LE(copy(Link::kInUse).first, 1.01 * native_us);
}

TEST_P(LateShareTest, AQuietLinkIsUsedAgainAfterAWhile) {
  const double native_us = copy(Link::kQuiet, false).first;
  (void)copy(Link::kInUse);
  EXPECT_FALSE(copy(Link::kQuiet).second);
  clock_->leapt_ns += Backoff::kFirstNs;
  const auto [took_us, is_carried] = copy(Link::kQuiet);
  EXPECT_TRUE(is_carried);
  EXPECT_LT(took_us, 0.7 * native_us);
}

// A copy finds out what has become of the one before.
TEST_P(LateShareTest, ALinkThatStaysInUseIsTriedLessAndLess) {
  EXPECT_TRUE(copy(Link::kInUse).second);
  EXPECT_FALSE(copy(Link::kInUse).second);
  clock_->leapt_ns += Backoff::kFirstNs;
  EXPECT_TRUE(copy(Link::kInUse).second);
  EXPECT_FALSE(copy(Link::kInUse).second);
  clock_->leapt_ns += Backoff::kFirstNs;
  EXPECT_FALSE(copy(Link::kInUse).second);
  clock_->leapt_ns += Backoff::kFirstNs;
  EXPECT_TRUE(copy(Link::kInUse).second);
}

// What braid itself has made late says nothing of others.
TEST_P(LateShareTest, BraidsOwnCopiesAreNoReason) {
  for (int round = 0; round < 4; ++round) {
    std::vector<CUstream> streams(6);
    for (CUstream& stream : streams) {
      stream = new_stream();
      const Batch all{GetParam(), host_->data(), device_->at(), kSize, stream};
      if (engine_->submit(all) != Verdict::kAccelerated)
        test::must(driver(), native(device_->at(), host_->data(), stream), "a copy");
    }
    for (const CUstream stream : streams) synchronize(stream);
  }
  EXPECT_TRUE(copy(Link::kQuiet).second);
}

INSTANTIATE_TEST_SUITE_P(Directions, LateShareTest,
                         ::testing::Values(Direction::kHostToDevice, Direction::kDeviceToHost),
                         [](const auto& direction) {
                           return direction.param == Direction::kHostToDevice ? "H2D" : "D2H";
                         });

}  // namespace
}  // namespace braid::multipath
