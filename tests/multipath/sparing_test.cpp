// Batches that leave the target's multiprocessors alone (OwnLink): no kernel is launched there, the
// bytes arrive whole over its own link and over relays, and whatever the driver refuses leaves a
// stream that ends once nothing is under way.
#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <random>
#include <set>

#include "multipath/transfer_state.h"
#include "support/gate.h"
#include "support/server.h"

namespace braid::multipath {
namespace {

using test::DeviceBuffer;
using test::HostBuffer;

constexpr uint64_t kRoom = 64 << 20;
constexpr int kWaitMs = 5000;

// On which GPUs the engine launches kernels, and which launch the driver refuses.
struct Launches {
  static inline Launches* self = nullptr;
  cuda::Driver real;
  std::set<int> gpus = {};
  int made = 0;
  std::function<bool(int)> is_refused = nullptr;  // by the number of the launch, from 0

  CUresult note(CUstream stream) {
    if (is_refused && is_refused(made++)) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    CUcontext of_stream = nullptr, before = nullptr;
    CUdevice device = -1;
    MUST(real, cuStreamGetCtx(stream, &of_stream));
    MUST(real, cuCtxGetCurrent(&before));
    MUST(real, cuCtxSetCurrent(of_stream));
    MUST(real, cuCtxGetDevice(&device));
    MUST(real, cuCtxSetCurrent(before));
    gpus.insert(device);
    return CUDA_SUCCESS;
  }
  static CUresult launch(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                         unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream,
                         void** parameters, void** extra) {
    const CUresult noted = self->note(stream);
    return noted != CUDA_SUCCESS
               ? noted
               : self->real.cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared_bytes, stream,
                                           parameters, extra);
  }
  static CUresult launch_ex(const CUlaunchConfig* config, CUfunction function, void** parameters,
                            void** extra) {
    const CUresult noted = self->note(config->hStream);
    return noted != CUDA_SUCCESS ? noted
                                 : self->real.cuLaunchKernelEx(config, function, parameters, extra);
  }
};

class SparingTest : public test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    launches_.real = driver();
    Launches::self = &launches_;
    watched_ = driver();
    watched_.cuLaunchKernel = Launches::launch;
    watched_.cuLaunchKernelEx = Launches::launch_ex;
    open();
  }
  void open() {
    engine_.reset();
    auto opened = Engine::open(watched_, every_size());
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    engine_ = std::move(opened).value();
    launches_.gpus.clear();  // of warming up
  }

  // A batch with its two ends, and what its own link carries.
  class Way final : public OwnLink {
   public:
    Way(SparingTest& test, Direction direction, const std::vector<uint64_t>& sizes, uint64_t seed)
        : driver_(test.driver()),
          direction_(direction),
          host_(test.driver(), kRoom),
          device_(test.driver(), kRoom),
          stream_(test.new_stream()) {
      host_.fill_random(seed);
      sent_.assign(host_.data(), host_.data() + kRoom);
      uint64_t at = 0;
      for (const uint64_t size_bytes : sizes) {
        segments_.push_back({host_.data() + at, device_.at(kRoom - at - size_bytes), size_bytes});
        at += size_bytes + 16;
      }
      // They lie in the other order on the GPU, so none continues the one before.
      if (direction == Direction::kDeviceToHost) {
        for (const Segment& segment : segments_)
          MUST(driver_, cuMemcpyHtoD(segment.device, segment.host, segment.size_bytes));
        std::memset(host_.data(), 0, kRoom);
      } else {
        MUST(driver_, cuMemsetD8(device_.at(), 0, kRoom));
      }
      MUST(driver_, cuCtxSynchronize());
    }

    CUresult copy(uint64_t first_bytes) const override {
      own_bytes_ = first_bytes;
      if (refuses) return CUDA_ERROR_OUT_OF_MEMORY;
      for (const Segment& segment : segments_) {
        const uint64_t bytes = std::min(segment.size_bytes, first_bytes);
        first_bytes -= bytes;
        if (bytes == 0) break;
        const CUresult copied =
            direction_ == Direction::kHostToDevice
                ? driver_.cuMemcpyHtoDAsync(segment.device, segment.host, bytes, stream_)
                : driver_.cuMemcpyDtoHAsync(segment.host, segment.device, bytes, stream_);
        if (copied != CUDA_SUCCESS) return copied;
      }
      if (behind != nullptr) behind->hold(stream_);
      return CUDA_SUCCESS;
    }

    Outcome submit(Engine& engine) {
      Batch batch{direction_, segments_, stream_};
      batch.own_link = this;
      return engine.submit(batch);
    }
    /// All but the first `skip_bytes` are at the other end.
    bool has_arrived(uint64_t skip_bytes = 0) {
      MUST(driver_, cuStreamSynchronize(stream_));
      std::vector<uint8_t> seen(kRoom);
      for (const Segment& segment : segments_) {
        const auto offset = static_cast<uint8_t*>(segment.host) - host_.data();
        if (direction_ == Direction::kHostToDevice)
          MUST(driver_, cuMemcpyDtoH(seen.data() + offset, segment.device, segment.size_bytes));
        else
          std::memcpy(seen.data() + offset, segment.host, segment.size_bytes);
        const uint64_t skipped = std::min(segment.size_bytes, skip_bytes);
        skip_bytes -= skipped;
        if (std::memcmp(seen.data() + offset + skipped, sent_.data() + offset + skipped,
                        segment.size_bytes - skipped) != 0)
          return false;
      }
      return true;
    }
    /// What the stream's next operation sees of the last segment, which relays carry.
    std::vector<uint8_t> last_as_seen() {
      const Segment& last = segments_.back();
      HostBuffer seen(driver_, last.size_bytes);
      if (direction_ == Direction::kDeviceToHost) {
        DeviceBuffer there(driver_, last.size_bytes);
        MUST(driver_, cuMemcpyHtoDAsync(there.at(), last.host, last.size_bytes, stream_));
        MUST(driver_, cuStreamSynchronize(stream_));
        MUST(driver_, cuMemcpyDtoH(seen.data(), there.at(), last.size_bytes));
      } else {
        MUST(driver_, cuMemcpyDtoHAsync(seen.data(), last.device, last.size_bytes, stream_));
        MUST(driver_, cuStreamSynchronize(stream_));
      }
      return {seen.data(), seen.data() + last.size_bytes};
    }
    std::vector<uint8_t> last_as_sent() const {
      const auto* begin =
          sent_.data() + (static_cast<uint8_t*>(segments_.back().host) - host_.data());
      return {begin, begin + segments_.back().size_bytes};
    }
    uint64_t own_bytes() const { return own_bytes_; }
    uint64_t size_bytes() const {
      uint64_t all = 0;
      for (const Segment& segment : segments_) all += segment.size_bytes;
      return all;
    }
    bool refuses = false;
    test::Gate* behind = nullptr;  // holds the stream when its own link has carried its part

   private:
    const cuda::Driver& driver_;
    const Direction direction_;
    mutable HostBuffer host_;
    DeviceBuffer device_;
    const CUstream stream_;
    std::vector<Segment> segments_;
    std::vector<uint8_t> sent_;
    mutable uint64_t own_bytes_ = 0;
  };

  // What has gone over the link of GPU 0, and over others, by each mover.
  uint64_t carried(Mover mover, bool is_own) {
    uint64_t bytes = 0;
    for (const PathCount& count : engine_->collect(kWaitMs))
      if (count.mover == mover && (count.via == 0) == is_own) bytes += count.bytes;
    return bytes;
  }

  Launches launches_;
  cuda::Driver watched_;
  std::unique_ptr<Engine> engine_;
};

constexpr Direction kWays[] = {Direction::kHostToDevice, Direction::kDeviceToHost};

const std::vector<std::vector<uint64_t>>& shapes() {
  static const std::vector<std::vector<uint64_t>> all = {
      std::vector<uint64_t>(500, 64 << 10),
      std::vector<uint64_t>(4000, 1024),
      {20'000'001, 30'000'000},
      {5, 40 << 20, 3, 1 << 20, 77},
  };
  return all;
}

TEST_F(SparingTest, NoKernelRunsOnTheTargetAndBothWaysCarry) {
  for (const auto& sizes : shapes()) {
    for (const Direction direction : kWays) {
      SCOPED_TRACE(::testing::Message()
                   << sizes.size() << " segments, " << direction_name(direction));
      const uint64_t own_before = carried(Mover::kCopyEngine, true);
      const uint64_t relayed_before = carried(Mover::kKernel, false);
      Way way(*this, direction, sizes, 7);
      const Outcome outcome = way.submit(*engine_);
      ASSERT_STREQ(verdict_name(outcome), "accelerated");
      EXPECT_TRUE(way.has_arrived());
      EXPECT_GT(way.own_bytes(), 0u);
      EXPECT_EQ(outcome.own_bytes, way.own_bytes());
      EXPECT_EQ(carried(Mover::kCopyEngine, true) - own_before, way.own_bytes());
      EXPECT_EQ(carried(Mover::kKernel, false) - relayed_before,
                way.size_bytes() - way.own_bytes());
    }
  }
  EXPECT_FALSE(launches_.gpus.empty());
  EXPECT_FALSE(launches_.gpus.contains(0)) << "a kernel ran on the target";
  EXPECT_EQ(carried(Mover::kKernel, true), 0u);
}

TEST_F(SparingTest, OneSegmentGoesByCopyEngines) {
  for (const Direction direction : kWays) {
    Way way(*this, direction, {40 << 20}, 8);
    ASSERT_STREQ(verdict_name(way.submit(*engine_)), "accelerated");
    EXPECT_TRUE(way.has_arrived());
  }
  EXPECT_TRUE(launches_.gpus.empty());
}

TEST_F(SparingTest, BothDirectionsAtOnce) {
  for (int round = 0; round < 3; ++round) {
    Way up(*this, Direction::kHostToDevice, shapes()[0], 10 + round);
    Way down(*this, Direction::kDeviceToHost, shapes()[0], 20 + round);
    ASSERT_STREQ(verdict_name(up.submit(*engine_)), "accelerated");
    ASSERT_STREQ(verdict_name(down.submit(*engine_)), "accelerated");
    EXPECT_TRUE(up.has_arrived());
    EXPECT_TRUE(down.has_arrived());
  }
}

// Its blocks are launched on another relay: else the transfer's state would never be free again.
TEST_F(SparingTest, ARelayThatIsRefusedIsLeftToTheOthers) {
  if (gpus() < 3) GTEST_SKIP() << "waived: needs two relays";
  const int relays = gpus() - 1;
  for (int refused = 0; refused < relays; ++refused) {
    open();  // a relay that was refused rests
    Way way(*this, kWays[refused % 2], shapes()[0], 30 + refused);
    launches_.made = 0;
    launches_.is_refused = [&](int number) { return number == refused; };
    ASSERT_STREQ(verdict_name(way.submit(*engine_)), "accelerated") << refused;
    EXPECT_TRUE(way.has_arrived()) << refused;
    EXPECT_EQ(launches_.made, relays + 1) << "each relay's, and the blocks of the one again";
    EXPECT_EQ(carried(Mover::kKernel, false), way.size_bytes() - way.own_bytes())
        << "a transfer whose blocks have not all left counts nothing";
    EXPECT_FALSE(launches_.gpus.contains(0));
    launches_.is_refused = nullptr;
  }
}

TEST_F(SparingTest, WithoutARelayNothingIsEnqueued) {
  Way way(*this, Direction::kHostToDevice, shapes()[0], 40);
  launches_.is_refused = [](int) { return true; };
  EXPECT_STREQ(verdict_name(way.submit(*engine_)), "driver_error");
  EXPECT_EQ(way.own_bytes(), 0u);
  EXPECT_FALSE(way.has_arrived());
}

// The stream ends when the relays' part has landed, and not before.
TEST_F(SparingTest, ARefusalOfTheOwnLinkIsToldAndTheStreamWaitsForTheRelays) {
  for (const Direction direction : kWays) {
    Way way(*this, direction, shapes()[0], 50);
    way.refuses = true;
    const Outcome outcome = way.submit(*engine_);
    EXPECT_STREQ(verdict_name(outcome), "failed");
    EXPECT_EQ(outcome.error, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(way.last_as_seen(), way.last_as_sent()) << "the stream has not waited";
    EXPECT_TRUE(way.has_arrived(way.own_bytes())) << "the relays' part";
    EXPECT_FALSE(way.has_arrived());
    way.refuses = false;
    EXPECT_STREQ(verdict_name(way.submit(*engine_)), "accelerated");
    EXPECT_TRUE(way.has_arrived());
  }
}

// The relays have long been ready, but the stream has yet to look at the counters: a context that
// ends leaves them mapped until then.
TEST_F(SparingTest, AContextThatEndsWaitsUntilTheStreamIsBehindItsGate) {
  Way way(*this, Direction::kHostToDevice, shapes()[0], 70);
  test::Gate gate(driver());
  way.behind = &gate;
  ASSERT_STREQ(verdict_name(way.submit(*engine_)), "accelerated");
  auto ended = std::async(std::launch::async, [&] {
    driver().cuCtxSetCurrent(context(0));
    engine_->forget_context(context(0));
  });
  EXPECT_EQ(ended.wait_for(std::chrono::seconds(2)), std::future_status::timeout);
  gate.open();
  ended.get();
  EXPECT_TRUE(way.has_arrived());
}

TEST_F(SparingTest, StatesAreUsedAgain) {
  std::vector<uint64_t> small(200, 4096);
  Way way(*this, Direction::kHostToDevice, small, 60);
  for (size_t round = 0; round < 2 * kMostTransfers; ++round) {
    ASSERT_STREQ(verdict_name(way.submit(*engine_)), "accelerated") << round;
    if (round % 16 == 0) {
      ASSERT_TRUE(way.has_arrived());
    }
  }
  EXPECT_TRUE(way.has_arrived());
}

}  // namespace
}  // namespace braid::multipath
