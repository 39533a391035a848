// Copies through the C interface: every byte arrives, in the stream's order, whichever way it goes,
// and the outcome says which way that was.
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "fixture.h"
#include "support/gate.h"
#include "support/set_variable.h"

namespace braid::test {
namespace {

class CopyTest : public LibraryTest {
 protected:
  nlohmann::json statistics() const {
    size_t needed = 0;
    EXPECT_EQ(braid_stats_json(engine_, nullptr, 0, &needed), BRAID_OK);
    std::string text(needed, '\0');
    EXPECT_EQ(braid_stats_json(engine_, text.data(), text.size(), &needed), BRAID_OK);
    return nlohmann::json::parse(text.c_str()).at("braid");
  }
};

// The variable that it sets, and its name.
using Tool = std::pair<std::string, std::string>;

class ToolTest : public CopyTest, public ::testing::WithParamInterface<Tool> {
 protected:
  const SetVariable set_{GetParam().first.c_str(), "/opt/nvidia"};
};

TEST_P(ToolTest, NoGpuRelaysAndStatisticsSayWhy) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  host.fill_random(1);
  ASSERT_EQ(braid_copy(engine_, at(device), host.data(), kSize, stream_, 0, &outcome_), BRAID_OK);
  EXPECT_STREQ(outcome_.reason, "no_relay");
  synchronize(stream_);
  EXPECT_EQ(bytes(host), read(device, kSize));
  const auto problems = statistics().at("problems");
  ASSERT_EQ(problems.size(), 1u) << problems;
  EXPECT_NE(problems[0].get<std::string>().find(GetParam().second), std::string::npos) << problems;
}

INSTANTIATE_TEST_SUITE_P(
    Tools, ToolTest,
    ::testing::Values(Tool{"NV_SANITIZER_INJECTION_PORT_BASE", "compute-sanitizer"},
                      Tool{"NV_COMPUTE_PROFILER_PERFWORKS_DIR", "Nsight Compute"}),
    [](const auto& tool) { return tool.param.first; });

TEST_F(CopyTest, GoesBothWaysInTheStreamsOrder) {
  HostBuffer sent(driver(), kSize);
  HostBuffer received(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  sent.fill_random(1);
  received.fill_random(2);
  ASSERT_EQ(braid_copy(engine_, at(device), sent.data(), kSize, stream_, BRAID_PRIORITY_URGENT,
                       &outcome_),
            BRAID_OK)
      << braid_last_error();
  EXPECT_STREQ(outcome_.reason, "accelerated");
  EXPECT_EQ(outcome_.accelerated_bytes, kSize);
  EXPECT_EQ(outcome_.native_bytes, 0u);
  ASSERT_EQ(braid_copy(engine_, received.data(), at(device), kSize, stream_, BRAID_PRIORITY_BULK,
                       &outcome_),
            BRAID_OK);
  EXPECT_EQ(outcome_.accelerated_bytes, kSize);
  synchronize(stream_);
  EXPECT_EQ(bytes(sent), bytes(received));
}

TEST_F(CopyTest, IsMadeByTheDriverWhereBraidDoesNotHelp) {
  HostBuffer pinned(driver(), kSize);
  pinned.fill_random(3);
  const std::vector<uint8_t> pageable = bytes(pinned);
  DeviceBuffer device(driver(), kSize);
  DeviceBuffer other(driver(), kSize);
  const auto copy = [&](void* to, const void* from, uint64_t size_bytes) {
    EXPECT_EQ(braid_copy(engine_, to, from, size_bytes, stream_, 0, &outcome_), BRAID_OK)
        << braid_last_error();
    EXPECT_EQ(outcome_.native_bytes, size_bytes);
    EXPECT_EQ(outcome_.accelerated_bytes, 0u);
    synchronize(stream_);
    return std::string(outcome_.reason);
  };
  EXPECT_EQ(copy(at(device), pinned.data(), 1000), "below_threshold");
  EXPECT_EQ(read(device, 1000), std::vector(pageable.begin(), pageable.begin() + 1000));
  EXPECT_EQ(copy(at(device), pageable.data(), kSize - (1 << 10)),
            "pageable");  // too small to stage
  MUST(driver(), cuMemcpyHtoD(device.at(), pinned.data(), kSize));
  EXPECT_EQ(copy(at(other), at(device), kSize), "not_linear");
  EXPECT_EQ(read(other, kSize), pageable);
}

TEST_F(CopyTest, StagesPageableMemoryBothWays) {
  constexpr uint64_t kLarge = 9 << 20;
  const braid_option rows[] = {{"BRAID_PAGEABLE", "2"}};
  const braid_options options{sizeof options, rows, 1};
  braid_engine* engine = nullptr;
  ASSERT_EQ(braid_open(&options, &engine), BRAID_OK) << braid_last_error();
  HostBuffer pinned(driver(), kLarge);
  pinned.fill_random(15);
  std::vector<uint8_t> sent = bytes(pinned), received(kLarge, 0);
  DeviceBuffer device(driver(), kLarge);
  ASSERT_EQ(braid_copy(engine, at(device), sent.data(), kLarge, stream_, 0, &outcome_), BRAID_OK);
  EXPECT_STREQ(outcome_.reason, "staged");
  EXPECT_EQ(outcome_.accelerated_bytes, kLarge);
  ASSERT_EQ(braid_copy(engine, received.data(), at(device), kLarge, stream_, 0, &outcome_),
            BRAID_OK);
  EXPECT_STREQ(outcome_.reason, "staged");
  EXPECT_EQ(received, sent);  // as cuMemcpyAsync returns, when the bytes have arrived
  braid_close(engine);
}

TEST_F(CopyTest, RowsThatLieApartGoByBothWays) {
  struct Shape {
    uint64_t row_bytes, rows, host_pitch_bytes, device_pitch_bytes;
    const char* reason;
  };
  for (const Shape& shape : {Shape{20000, 300, 20480, 24576, "accelerated"},
                             Shape{16384, 256, 16384, 16384, "accelerated"},  // which touch
                             Shape{1000, 300, 1024, 2048, "not_linear"}}) {
    SCOPED_TRACE(shape.row_bytes);
    HostBuffer sent(driver(), shape.host_pitch_bytes * shape.rows);
    HostBuffer received(driver(), shape.host_pitch_bytes * shape.rows);
    DeviceBuffer device(driver(), shape.device_pitch_bytes * shape.rows);
    sent.fill_random(shape.row_bytes);
    std::memset(received.data(), 0x5a, received.size());
    MUST(driver(), cuMemsetD8(device.at(), 0x77, shape.device_pitch_bytes * shape.rows));
    const uint64_t size_bytes = shape.row_bytes * shape.rows;
    const auto expect_way = [&] {
      EXPECT_STREQ(outcome_.reason, shape.reason);
      EXPECT_EQ(outcome_.accelerated_bytes + outcome_.native_bytes, size_bytes);
    };
    ASSERT_EQ(
        braid_copy_rows(engine_, at(device), shape.device_pitch_bytes, sent.data(),
                        shape.host_pitch_bytes, shape.row_bytes, shape.rows, stream_, 0, &outcome_),
        BRAID_OK)
        << braid_last_error();
    expect_way();
    ASSERT_EQ(braid_copy_rows(engine_, received.data(), shape.host_pitch_bytes, at(device),
                              shape.device_pitch_bytes, shape.row_bytes, shape.rows, stream_, 0,
                              &outcome_),
              BRAID_OK)
        << braid_last_error();
    expect_way();
    synchronize(stream_);
    const auto there = read(device, shape.device_pitch_bytes * shape.rows);
    for (uint64_t row = 0; row < shape.rows; ++row) {
      const uint8_t* from = sent.data() + row * shape.host_pitch_bytes;
      const uint8_t* back = received.data() + row * shape.host_pitch_bytes;
      const uint8_t* on_gpu = there.data() + row * shape.device_pitch_bytes;
      ASSERT_EQ(std::memcmp(from, back, shape.row_bytes), 0) << row;
      ASSERT_EQ(std::memcmp(from, on_gpu, shape.row_bytes), 0) << row;
      for (uint64_t at = shape.row_bytes; at < shape.host_pitch_bytes; ++at)
        ASSERT_EQ(back[at], 0x5a) << row;
      for (uint64_t at = shape.row_bytes; at < shape.device_pitch_bytes; ++at)
        ASSERT_EQ(on_gpu[at], 0x77) << row;
    }
  }
}

TEST_F(CopyTest, AForecastSaysWhatWouldBeAndCopiesNothing) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize), other(driver(), kSize);
  host.fill_random(16);
  MUST(driver(), cuMemsetD8(device.at(), 0x5a, kSize));
  const auto forecast = [&](void* to, const void* from, size_t size_bytes) {
    EXPECT_EQ(braid_forecast(engine_, &to, &from, &size_bytes, 1, stream_, 0, &outcome_), BRAID_OK)
        << braid_last_error();
    EXPECT_EQ(outcome_.accelerated_bytes + outcome_.native_bytes, size_bytes);
    return std::string(outcome_.reason);
  };
  EXPECT_EQ(forecast(at(device), host.data(), kSize), "accelerated");
  EXPECT_EQ(outcome_.accelerated_bytes, kSize);
  EXPECT_EQ(forecast(at(device), host.data(), 1000), "below_threshold");
  EXPECT_EQ(outcome_.native_bytes, 1000u);
  EXPECT_EQ(forecast(at(device), at(other), kSize), "not_linear");
  synchronize(stream_);
  EXPECT_EQ(read(device, kSize), std::vector<uint8_t>(kSize, 0x5a));
  size_t needed = 0;
  ASSERT_EQ(braid_stats_json(engine_, nullptr, 0, &needed), BRAID_OK);
  std::string text(needed, '\0');
  EXPECT_EQ(braid_stats_json(engine_, text.data(), 5, &needed), BRAID_ERROR_ARGUMENT);
  const auto all = statistics();
  const auto& copies = all.at("entry_points").at("braid_copy");
  EXPECT_EQ(copies.at("accelerated").at("calls"), 2);
  EXPECT_EQ(copies.at("accelerated").at("bytes"), 2 * kSize);
  EXPECT_EQ(copies.at("below_threshold").at("bytes"), 10);
  EXPECT_EQ(all.at("movers").at("copy_engine").at("bytes"), 2 * kSize) << all;
  EXPECT_EQ(all.at("movers").at("native").at("bytes"), 10);
  uint64_t carried = 0;
  for (const auto& path : all.at("paths")) {
    EXPECT_EQ(path.at("mover"), "copy_engine");
    carried += path.at("bytes").get<uint64_t>();
  }
  EXPECT_EQ(carried, 2 * kSize);
  EXPECT_TRUE(all.at("problems").empty()) << all;
}

}  // namespace
}  // namespace braid::test
