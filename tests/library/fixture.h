// What the library's tests share: a server, an engine opened through the C interface with a low
// threshold, and buffers that are filled at random and compared whole.
#pragma once

#include <braid/braid.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/server.h"

namespace braid::test {

class LibraryTest : public ServerTest {
 protected:
  static constexpr uint64_t kSize = (1 << 20) + 13;  // above the threshold of these tests

  void SetUp() override {
    ServerTest::SetUp();
    if (IsSkipped()) return;
    const braid_option threshold{"BRAID_THRESHOLD", "64K"};
    const braid_options options{sizeof options, &threshold, 1};
    ASSERT_EQ(braid_open(&options, &engine_), BRAID_OK) << braid_last_error();
    stream_ = new_stream();
  }
  void TearDown() override { braid_close(engine_); }

  static void* at(const DeviceBuffer& buffer, uint64_t offset = 0) {
    return reinterpret_cast<void*>(buffer.at(offset));
  }

  /// Device memory as bytes, read in pieces by the driver itself.
  std::vector<uint8_t> read(const DeviceBuffer& buffer, uint64_t size_bytes) const {
    std::vector<uint8_t> bytes(size_bytes);
    MUST(driver(), cuMemcpyDtoH(bytes.data(), buffer.at(), size_bytes));
    return bytes;
  }

  static std::vector<uint8_t> bytes(HostBuffer& buffer) {
    return {buffer.data(), buffer.data() + buffer.size()};
  }

  /// The engine's.
  nlohmann::json statistics() const {
    size_t needed = 0;
    EXPECT_EQ(braid_stats_json(engine_, nullptr, 0, &needed), BRAID_OK);
    std::string text(needed, '\0');
    EXPECT_EQ(braid_stats_json(engine_, text.data(), text.size(), &needed), BRAID_OK);
    return nlohmann::json::parse(text.c_str()).at("braid");
  }

  braid_engine* engine_ = nullptr;
  CUstream stream_ = nullptr;
  braid_outcome outcome_{sizeof(braid_outcome), 0, 0, ""};
};

}  // namespace braid::test
