// What the tests of libbraid_kv.so share: a cache of a few blocks on GPU 0, and two requests that
// do not fit together and take turns.
#pragma once

#include <braid/kv.h>

#include <cstring>
#include <memory>
#include <vector>

#include "support/server.h"

namespace braid::test {

inline constexpr uint32_t kGpuSlots = 6;
inline constexpr uint32_t kHostSlots = 12;
inline constexpr Rotation::Model kModel{4, 2, 64, 2, 16};

class KvLibraryTest : public ServerTest {
 protected:
  KvLibraryTest() { gpus_needed = 1; }

  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    auto segments = Rotation::segments(kModel, Rotation::GpuOrder::kBlockFirst, kGpuSlots);
    ASSERT_TRUE(segments.ok()) << segments.status().message();
    ASSERT_EQ(segments.value().size(), 1u);
    block_bytes_ = segments.value()[0].size_bytes;
    ASSERT_EQ(block_bytes_, 4u * 2 * 2 * 64 * 2 * 16);
    cache_ = std::make_unique<DeviceBuffer>(driver(), kGpuSlots * block_bytes_);
    compute_ = new_stream();
    options_ = {segments.value(), kGpuSlots, kHostSlots, {{context(0), cache_->at(), compute_}}};
  }

  void split_blocks(uint64_t pieces) {
    options_.segments.clear();
    for (uint64_t piece = 0; piece < pieces; ++piece)
      options_.segments.push_back(
          {piece * block_bytes_ / pieces, block_bytes_, block_bytes_ / pieces});
  }

  // A step that fills the block; the sources live as long as the test.
  void write(Rotation& rotation, BlockNumber block, uint8_t value) {
    written_.push_back(std::make_unique<HostBuffer>(driver(), block_bytes_));
    std::memset(written_.back()->data(), value, block_bytes_);
    MUST(driver(), cuMemcpyHtoDAsync(address(rotation, block), written_.back()->data(),
                                     block_bytes_, compute_));
  }
  bool holds(Rotation& rotation, BlockNumber block, uint8_t value) {
    HostBuffer read(driver(), block_bytes_);
    MUST(driver(),
         cuMemcpyDtoHAsync(read.data(), address(rotation, block), block_bytes_, compute_));
    synchronize(compute_);
    return std::vector(read.data(), read.data() + block_bytes_) ==
           std::vector<uint8_t>(block_bytes_, value);
  }
  CUdeviceptr address(Rotation& rotation, BlockNumber block) {
    return cache_->at(rotation.find(block).value().gpu_slot * block_bytes_);
  }

  // Two requests that do not fit together take turns.
  void rotate(Rotation& rotation) {
    std::vector<BlockNumber> requests[2];
    for (uint8_t round = 0; round < 2; ++round) {
      rotation.begin_step();
      for (uint8_t i = 0; i < 4; ++i) {
        auto block = rotation.create();
        ASSERT_TRUE(block.ok()) << block.status().message();
        requests[round].push_back(block.value());
        write(rotation, block.value(), static_cast<uint8_t>(10 * round + i + 1));
      }
      ASSERT_TRUE(rotation.seal(requests[round]).ok());
      ASSERT_TRUE(rotation.end_step().ok());
      preempt(rotation, requests[round]);
    }
    for (uint8_t round = 0; round < 2; ++round) {
      const std::vector<BlockNumber>& request = requests[round];
      ASSERT_TRUE(rotation.submit({.load = request}).failure.ok());
      const Rotation::Applied used = rotation.begin_use(request);
      ASSERT_TRUE(used.ok()) << used.words();
      rotation.begin_step();
      for (uint8_t i = 0; i < 4; ++i)
        EXPECT_TRUE(holds(rotation, request[i], static_cast<uint8_t>(10 * round + i + 1)));
      ASSERT_TRUE(rotation.end_step().ok());
      preempt(rotation, request);
      EXPECT_TRUE(rotation.release(request).ok());
    }
  }
  void preempt(Rotation& rotation, const std::vector<BlockNumber>& request) {
    ASSERT_TRUE(rotation.poll().ok());
    ASSERT_TRUE(rotation.end_use(request).ok());
    const auto submitted = rotation.submit({.evict = request});
    ASSERT_TRUE(submitted.failure.ok()) << submitted.failure.message();
    ASSERT_TRUE(submitted.refused.empty());
    rotation.wait();
    ASSERT_TRUE(rotation.poll().ok());
    for (const BlockNumber block : request)
      ASSERT_EQ(rotation.find(block).value().state, Rotation::BlockState::kHostOnly);
  }

  uint64_t block_bytes_ = 0;
  std::unique_ptr<DeviceBuffer> cache_;
  CUstream compute_ = nullptr;
  Rotation::Options options_;
  std::vector<std::unique_ptr<HostBuffer>> written_;
};

}  // namespace braid::test
