// Rails of unequal speed: each pulls as much as it can carry, and the end comes when their speeds
// together allow it.
#include <gtest/gtest.h>

#include <numeric>

#include "fabric/small_net.h"

namespace braid::fabric {
namespace {

using test::SmallNet;

constexpr uint64_t kSliceBytes = 64 << 10;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kSizeBytes = 32 << 20;

class UnequalRails : public testing::TestWithParam<std::vector<double>> {
 protected:
  static sim::NetworkOptions options() {
    sim::NetworkOptions options;
    options.postings_max = 2;
    return options;
  }

  UnequalRails() : net_(options()) {
    net_.rail_gbps = GetParam();
    net_.rail_count = net_.rail_gbps.size();
    net_.options.slicing = {kSliceBytes, 4096};
    owner_ = &net_.add(1), writer_ = &net_.add(2);
    const uint64_t peer = net_.connect(*owner_, *writer_);
    for (size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<std::byte>(i * 31 >> 7);
    const uint64_t region = owner_->engine->add_region(memory_).value();
    const Granted granted = owner_->engine->grant(region, peer, 0, kSizeBytes).value();
    target_ = writer_->engine->open_target(granted.descriptor).value();
    from_ = writer_->engine->add_region(source_).value();
    immediate_ = owner_->engine->counters().acquire().value();
  }

  /// Until the owner has counted all. In time, and each rail has its share.
  void expect_shares(uint64_t immediates) {
    const double sum_gbps = std::accumulate(GetParam().begin(), GetParam().end(), 0.0);
    const uint64_t begun_ns = net_.now_ns();
    const double ideal_us = kSizeBytes / sum_gbps / 1e3;
    ASSERT_TRUE(net_.run(
        20 * ideal_us, [&] { return owner_->engine->counters().count(immediate_) == immediates; }));
    const double took_us = static_cast<double>(net_.now_ns() - begun_ns) / 1e3;
    EXPECT_LT(took_us, 1.25 * ideal_us);
    EXPECT_EQ(memory_, source_);
    net_.run(1'000);
    for (const RouteStatistics& route : writer_->engine->routes())
      EXPECT_NEAR(static_cast<double>(route.bytes) / kSizeBytes, GetParam()[route.rail] / sum_gbps,
                  0.06)
          << "rail " << route.rail;
  }

  SmallNet net_;
  SmallNet::Node* owner_ = nullptr;
  SmallNet::Node* writer_ = nullptr;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kSizeBytes);
  std::vector<std::byte> source_ = std::vector<std::byte>(kSizeBytes);
  uint64_t target_ = 0, from_ = 0;
  uint32_t immediate_ = 0;
};

TEST_P(UnequalRails, ASlowRailDoesNotHoldTheEndOfAWriteBack) {
  ASSERT_TRUE(
      writer_->engine->write(from_, target_, {0, 0, kSizeBytes}, immediate_, ~uint64_t{0}).ok());
  expect_shares(kSizeBytes / kSliceBytes);
}

TEST_P(UnequalRails, NorThatOfPages) {
  Pages pages{{}, kPage, 0};
  for (uint32_t page = 0; page < kSizeBytes / kPage; ++page) pages.indices.push_back(page);
  ASSERT_TRUE(
      writer_->engine->write_pages(from_, target_, kPage, pages, pages, immediate_, ~uint64_t{0})
          .ok());
  expect_shares(kSizeBytes / kPage);
}

INSTANTIATE_TEST_SUITE_P(Speeds, UnequalRails,
                         testing::Values(std::vector<double>{1, 1}, std::vector<double>{1, 0.25},
                                         std::vector<double>{0.2, 1, 0.5, 1}));

}  // namespace
}  // namespace braid::fabric
