// What the C interface refuses, with which status and words, and that it then has done nothing.
#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "fixture.h"

namespace braid::test {
namespace {

using ErrorsTest = LibraryTest;

bool says(const char* words) {
  return std::string(braid_last_error()).find(words) != std::string::npos;
}

TEST_F(ErrorsTest, NullsAreArguments) {
  HostBuffer host(driver(), 64);
  void* to[] = {host.data()};
  const void* from[] = {host.data() + 32};
  const size_t sizes[] = {8};
  EXPECT_EQ(braid_open(nullptr, nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_prepare(nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_forget_context(engine_, nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_stats_json(nullptr, nullptr, 0, nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_copy(nullptr, to[0], from[0], 8, stream_, 0, nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("the engine is null")) << braid_last_error();
  EXPECT_EQ(braid_copy(engine_, nullptr, from[0], 8, stream_, 0, nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_copy(engine_, to[0], nullptr, 8, stream_, 0, nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("null address")) << braid_last_error();
  EXPECT_EQ(braid_copy_batch(engine_, nullptr, from, sizes, 1, stream_, 0, nullptr),
            BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_gather(engine_, to[0], nullptr, sizes, 1, stream_, 0, nullptr),
            BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_scatter(engine_, to, from[0], nullptr, 1, stream_, 0, nullptr),
            BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_copy_batch(engine_, nullptr, nullptr, nullptr, 0, stream_, 0, nullptr), BRAID_OK);
  braid_close(nullptr);
}

TEST_F(ErrorsTest, ASizeThatTheAddressHasNoRoomForIsAnArgument) {
  HostBuffer host(driver(), 64);
  EXPECT_EQ(braid_copy(engine_, host.data(), host.data() + 8, SIZE_MAX, stream_, 0, nullptr),
            BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("entry 0")) << braid_last_error();
}

TEST_F(ErrorsTest, RowsThatOverlapOrLeaveTheAddressSpaceAreArguments) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const auto copy = [&](size_t pitch_bytes, size_t row_bytes, size_t rows) {
    return braid_copy_rows(engine_, at(device), pitch_bytes, host.data(), row_bytes, row_bytes,
                           rows, stream_, 0, &outcome_);
  };
  EXPECT_EQ(copy(100, 200, 2), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("pitch") && says("200")) << braid_last_error();
  EXPECT_EQ(copy(SIZE_MAX / 2, 200, 4), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(copy(100, 200, 1), BRAID_OK) << "one row has no pitch: " << braid_last_error();
  EXPECT_EQ(copy(100, 200, 0), BRAID_OK) << braid_last_error();
  synchronize(stream_);
}

TEST_F(ErrorsTest, OverlappingDestinationsAreRefusedAndNothingIsCopied) {
  HostBuffer host(driver(), 2 * kSize);
  DeviceBuffer device(driver(), 2 * kSize);
  host.fill_random(1);
  MUST(driver(), cuMemsetD8(device.at(), 0x5a, 2 * kSize));
  // In descending order, so that neighbours in the list are not neighbours in memory.
  void* const to[] = {at(device, kSize), at(device, kSize / 2), at(device)};
  const void* const from[] = {host.data(), host.data(), host.data()};
  const size_t sizes[] = {kSize, kSize / 2 + 2, kSize / 2};
  EXPECT_EQ(braid_copy_batch(engine_, to, from, sizes, 3, stream_, 0, nullptr),
            BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("two destinations")) << braid_last_error();
  synchronize(stream_);
  EXPECT_EQ(read(device, 2 * kSize), std::vector<uint8_t>(2 * kSize, 0x5a));
  const size_t apart[] = {kSize, kSize / 2, kSize / 2};
  EXPECT_EQ(braid_copy_batch(engine_, to, from, apart, 3, stream_, 0, nullptr), BRAID_OK);
  synchronize(stream_);
}

// Of many entries, a byte between two that are anywhere in the list.
TEST_F(ErrorsTest, OneSharedByteAmongManyEntriesIsFound) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](uint64_t end) {
    return std::uniform_int_distribution<uint64_t>(0, end - 1)(random);
  };
  for (int round = 0; round < 60; ++round) {
    const size_t count = 2 + below(round % 2 == 0 ? 100 : 3000);
    const uint64_t alignment = uint64_t{1} << below(17);
    std::vector<std::pair<uint64_t, uint64_t>> entries;  // where each begins, and its bytes
    uint64_t next = alignment * (1 + below(uint64_t{1} << 24));
    for (size_t i = 0; i < count; ++i) {
      entries.emplace_back(next, alignment * (1 + below(3)));
      next += entries.back().second + alignment * (below(2) * below(uint64_t{1} << below(24)));
    }
    const size_t one = below(count - 1);
    const auto forecast = [&](uint64_t more_bytes) {
      auto shuffled = entries;
      shuffled[one].second = shuffled[one + 1].first - shuffled[one].first + more_bytes;
      std::shuffle(shuffled.begin(), shuffled.end(), random);
      std::vector<void*> to;
      std::vector<size_t> sizes;
      for (const auto& [begin, size_bytes] : shuffled) {
        to.push_back(reinterpret_cast<void*>(begin));
        sizes.push_back(size_bytes);
      }
      const std::vector<const void*> from(to.begin(), to.end());
      return braid_forecast(engine_, to.data(), from.data(), sizes.data(), count, stream_, 0,
                            &outcome_);
    };
    ASSERT_EQ(forecast(0), BRAID_OK) << round << ": " << braid_last_error();
    ASSERT_EQ(forecast(1), BRAID_ERROR_ARGUMENT) << round;
    ASSERT_TRUE(says("two destinations")) << round << ": " << braid_last_error();
  }
}

TEST_F(ErrorsTest, WhatTheDriverRefusesHasItsWords) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  EXPECT_EQ(braid_copy(engine_, at(device), host.data(), 64 * kSize, stream_, 0, nullptr),
            BRAID_ERROR_CUDA);
  EXPECT_TRUE(says("CUDA_ERROR_INVALID_VALUE")) << braid_last_error();
  EXPECT_EQ(braid_last_cuda_error(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(braid_prepare(nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_last_cuda_error(), CUDA_SUCCESS);
}

TEST_F(ErrorsTest, PrioritiesAndOutcomesOfUnknownShape) {
  EXPECT_EQ(braid_copy(engine_, nullptr, nullptr, 0, stream_, 7, nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("7 is not a priority")) << braid_last_error();
  outcome_.struct_bytes = 8;
  EXPECT_EQ(braid_copy(engine_, nullptr, nullptr, 0, stream_, 0, &outcome_), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("sizeof(braid_outcome)")) << braid_last_error();
}

TEST_F(ErrorsTest, OptionsAreThoseOfTheTable) {
  braid_engine* engine = engine_;
  const auto open = [&](const char* name, const char* value) {
    const braid_option option{name, value};
    const braid_options options{sizeof options, &option, 1};
    return braid_open(&options, &engine);
  };
  EXPECT_EQ(open("BRAID_SPEED", "11"), BRAID_ERROR_OPTION);
  EXPECT_EQ(engine, nullptr);
  EXPECT_TRUE(says("BRAID_SPEED") && says("BRAID_RELAYS")) << braid_last_error();
  EXPECT_EQ(open("BRAID_THRESHOLD", "much"), BRAID_ERROR_OPTION);
  EXPECT_TRUE(says("BRAID_THRESHOLD: 'much'")) << braid_last_error();
  EXPECT_EQ(open("BRAID_RELAYS", "99"), BRAID_ERROR_UNAVAILABLE);
  EXPECT_TRUE(says("GPU 99")) << braid_last_error();
  EXPECT_EQ(open("BRAID_RELAYS", nullptr), BRAID_ERROR_ARGUMENT);

  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  ASSERT_EQ(open("BRAID_RELAYS", "none"), BRAID_OK) << braid_last_error();
  EXPECT_EQ(braid_copy(engine, at(device), host.data(), kSize, stream_, 0, &outcome_), BRAID_OK);
  EXPECT_EQ(outcome_.accelerated_bytes, 0u);
  synchronize(stream_);
  braid_close(engine);
}

TEST_F(ErrorsTest, StructsOfOtherVersions) {
  struct {
    braid_options known{sizeof(braid_options), nullptr, 0};
    uint64_t later_field = 0;
  } options;
  braid_engine* engine = nullptr;
  options.known.struct_bytes = 8;
  EXPECT_EQ(braid_open(&options.known, &engine), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("sizeof(braid_options)")) << braid_last_error();
  options.known.struct_bytes = sizeof options;
  ASSERT_EQ(braid_open(&options.known, &engine), BRAID_OK) << braid_last_error();
  braid_close(engine);
  options.later_field = 1;
  EXPECT_EQ(braid_open(&options.known, &engine), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(says("does not know")) << braid_last_error();
}

TEST_F(ErrorsTest, WordsBelongToTheThread) {
  EXPECT_EQ(braid_prepare(nullptr), BRAID_ERROR_ARGUMENT);
  std::thread([] { EXPECT_STREQ(braid_last_error(), ""); }).join();
  EXPECT_TRUE(says("null"));
}

TEST(Names, AreKnownAndOneIsForWhatIsNot) {
  EXPECT_STREQ(braid_status_name(BRAID_OK), "ok");
  EXPECT_STREQ(braid_status_name(BRAID_ERROR_CUDA), "cuda");
  EXPECT_STREQ(braid_status_name(BRAID_ERROR_PEER), "peer");
  EXPECT_STREQ(braid_status_name(BRAID_ERROR_REGION), "region");
  EXPECT_STREQ(braid_status_name(99), "unknown");
}

}  // namespace
}  // namespace braid::test
