#include "kv/layout.h"

#include <gtest/gtest.h>

namespace braid::kv {
namespace {

constexpr uint32_t kSlots = 100;

ModelShape qwen() { return *find_model("Qwen2.5-32B"); }

// SuperInfer section 4.3.1: segments of 64 KB, blocks of 4 MB.
TEST(Layout, HasThePapersSizes) {
  const auto layers = Layout::of(qwen(), GpuOrder::kLayerFirst, kSlots);
  ASSERT_TRUE(layers.ok());
  EXPECT_EQ(layers.value().segments().size(), 64u);
  EXPECT_EQ(layers.value().segments()[0].size_bytes, 64u << 10);
  EXPECT_EQ(layers.value().block_bytes(), 4u << 20);
  const auto blocks = Layout::of(qwen(), GpuOrder::kBlockFirst, kSlots);
  ASSERT_TRUE(blocks.ok());
  EXPECT_EQ(blocks.value().segments().size(), 1u);
  EXPECT_EQ(blocks.value().block_bytes(), 4u << 20);
}

// Both orders are the same bytes on the host, and fill the GPU's cache without gaps.
TEST(Layout, IsBlockFirstOnTheHost) {
  const auto layers = Layout::of(qwen(), GpuOrder::kLayerFirst, kSlots).value();
  const auto blocks = Layout::of(qwen(), GpuOrder::kBlockFirst, kSlots).value();
  EXPECT_EQ(layers.host_stride_bytes(), blocks.host_stride_bytes());
  EXPECT_EQ(layers.gpu_bytes(kSlots), blocks.gpu_bytes(kSlots));
  uint64_t offset_bytes = 0;
  for (const Segment& segment : layers.segments()) {
    EXPECT_EQ(segment.host_offset_bytes, offset_bytes);
    offset_bytes += segment.size_bytes;
  }
}

TEST(Layout, HostSlotsAreAligned) {
  const auto odd = Layout::of({{.gpu_stride_bytes = 1000, .size_bytes = 300}});
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(odd.value().host_stride_bytes(), 512u);
  EXPECT_EQ(odd.value().gpu_bytes(3), 2300u);
}

TEST(Layout, NamesTheFieldThatIsWrong) {
  ModelShape shape = qwen();
  shape.head_size = 0;
  EXPECT_EQ(Layout::of(shape, GpuOrder::kBlockFirst, kSlots).status().message(),
            "head_size is 0. Give the model's own number");
  EXPECT_FALSE(Layout::of(qwen(), GpuOrder::kBlockFirst, ~0u).ok()) << "16 PB";
  EXPECT_FALSE(Layout::of({}).ok());
  EXPECT_NE(
      Layout::of({{.gpu_stride_bytes = 8, .size_bytes = 16}}).status().message().find("segment 0"),
      std::string::npos);
}

// Sums and products of 64 bits that wrap around would pin a small pool, and copies would leave it.
TEST(Layout, WhatLeavesTheAddressSpaceIsRefused) {
  constexpr uint64_t kHuge = uint64_t{1} << 63, kLarge = uint64_t{1} << 40;
  const auto words_of = [](std::vector<Segment> segments) {
    return Layout::of(std::move(segments)).status().message();
  };
  EXPECT_NE(words_of({{.gpu_stride_bytes = kHuge, .size_bytes = kHuge},
                      {.gpu_stride_bytes = kHuge, .size_bytes = kHuge}})
                .find("segment 0"),
            std::string::npos);
  EXPECT_NE(words_of({{.gpu_stride_bytes = 64, .size_bytes = 64},
                      {.gpu_base_bytes = ~uint64_t{0}, .gpu_stride_bytes = 64, .size_bytes = 64}})
                .find("segment 1"),
            std::string::npos);
  const std::vector<Segment> many(256, {.gpu_stride_bytes = kLarge, .size_bytes = kLarge});
  EXPECT_NE(words_of(many).find("segment 128"), std::string::npos);
  const auto layout = Layout::of({{.gpu_stride_bytes = kLarge, .size_bytes = 1 << 20}}).value();
  EXPECT_TRUE(layout.check(128, 1 << 20).ok());
  EXPECT_NE(layout.check(1 << 24, 8).message().find("gpu_slots"), std::string::npos);  // 2^64
  EXPECT_NE(layout.check(8, ~0u).message().find("host_slots"), std::string::npos);
}

}  // namespace
}  // namespace braid::kv
