// What the tests of the law share: an engine with two relays, and copies that must go over them.
#pragma once

#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/bounded_wait.h"
#include "support/gate.h"
#include "support/lock_holder.h"
#include "support/server.h"

namespace braid::multipath {

class LawTest : public test::ServerTest {
 protected:
  static constexpr uint64_t kSize = 32 << 20;

  void SetUp() override {
    ServerTest::SetUp();
    Options options = every_size();
    options.relays.kind = RelayChoice::Kind::kList;
    options.relays.gpus = {1, 2};
    engine_ = open_engine(options);
    host_ = std::make_unique<test::HostBuffer>(driver(), kSize);
    device_ = std::make_unique<test::DeviceBuffer>(driver(), kSize);
  }

  // In the stream's order, as a contiguous copy or as a batch, which kernels carry.
  Outcome send(CUstream stream, const test::DeviceBuffer& device, bool is_batch) {
    const Segment halves[] = {{host_->data() + kSize / 2, device.at(kSize / 2), kSize / 2},
                              {host_->data(), device.at(), kSize / 2}};
    const Segment whole{host_->data(), device.at(), kSize};
    const std::span<const Segment> all =
        is_batch ? std::span<const Segment>(halves) : std::span(&whole, 1);
    return engine_->submit(Batch{Direction::kHostToDevice, all, stream});
  }
  // The same, with help of GPU 1.
  void expect_carried(CUstream stream, const test::DeviceBuffer& device, bool is_batch) {
    const Outcome outcome = send(stream, device, is_batch);
    EXPECT_STREQ(verdict_name(outcome.verdict), "accelerated");
    EXPECT_EQ(outcome.mover, is_batch ? Mover::kKernel : Mover::kCopyEngine);
    EXPECT_NE(outcome.via >> 1 & 1, 0u) << "no relay takes part";
  }
  bool ends(CUstream stream) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    return cuda::wait_until_idle(driver(), stream, limit) == CUDA_SUCCESS;
  }
  bool has_arrived(const test::DeviceBuffer& device) {
    std::vector<uint8_t> seen(kSize);
    MUST(driver(), cuMemcpyDtoH(seen.data(), device.at(), kSize));
    return std::memcmp(seen.data(), host_->data(), kSize) == 0;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<test::HostBuffer> host_;
  std::unique_ptr<test::DeviceBuffer> device_;
};

}  // namespace braid::multipath
