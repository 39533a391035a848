// include/braid/copy.h: the C++ layer says what the C interface says, and owns its engine.
#include <braid/copy.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <vector>

#include "fixture.h"

namespace braid::test {
namespace {

static_assert(std::is_nothrow_move_constructible_v<Engine> &&
              !std::is_copy_constructible_v<Engine>);

class LayerTest : public ServerTest {
 protected:
  static constexpr uint64_t kSize = 1 << 20;
  static Engine open() {
    const std::array options{braid_option{"BRAID_THRESHOLD", "64K"}};
    auto opened = Engine::open(options);
    if (!opened.ok()) throw std::runtime_error(opened.status().message());
    return std::move(opened).value();
  }
};

TEST_F(LayerTest, CopiesBothWaysAfterItWasMoved) {
  Engine first = open();
  Engine engine = std::move(first);
  EXPECT_EQ(first.get(), nullptr);
  EXPECT_TRUE(engine.prepare().ok());
  HostBuffer sent(driver(), kSize);
  HostBuffer received(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  sent.fill_random(1);
  const CUstream stream = new_stream();
  const auto up = engine.copy(at(device.at()), sent.data(), kSize, stream, Urgency::kUrgent);
  ASSERT_TRUE(up.ok()) << up.status().message();
  EXPECT_TRUE(up.value().is_accelerated());
  EXPECT_EQ(up.value().accelerated_bytes, kSize);
  EXPECT_EQ(engine.forecast(received.data(), at(device.at()), kSize, stream).value().native_bytes,
            0u);
  const std::array<void*, 2> to{received.data(), received.data() + 1000};
  const std::array<size_t, 2> sizes{1000, kSize - 1000};
  const auto down = engine.scatter(to, at(device.at()), sizes, stream);
  ASSERT_TRUE(down.ok()) << down.status().message();
  EXPECT_EQ(down.value().accelerated_bytes + down.value().native_bytes, kSize);
  synchronize(stream);
  EXPECT_EQ(std::memcmp(sent.data(), received.data(), kSize), 0);
  const auto statistics = engine.statistics();
  ASSERT_TRUE(statistics.ok());
  EXPECT_NE(statistics.value().find("\"braid_scatter\""), std::string::npos);
  EXPECT_EQ(statistics.value().back(), '}');
}

TEST_F(LayerTest, PathsAreAllOfThoseThatACopyTakes) {
  constexpr size_t kLarge = 32 << 20;
  Engine engine = open();
  ASSERT_TRUE(engine.prepare().ok());
  HostBuffer host(driver(), kLarge);
  DeviceBuffer device(driver(), kLarge);
  host.fill_random(2);
  const auto planned = engine.paths(0, true, kLarge);
  ASSERT_TRUE(planned.ok()) << planned.status().message();
  ASSERT_GT(planned.value().size(), 1u);
  EXPECT_EQ(planned.value().front().gpu, 0);
  const CUstream stream = new_stream();
  ASSERT_TRUE(engine.copy(at(device.at()), host.data(), kLarge, stream).ok());
  synchronize(stream);
  std::vector<std::byte> there(kLarge);
  ASSERT_EQ(driver().cuMemcpyDtoH(there.data(), device.at(), kLarge), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(there.data(), host.data(), kLarge), 0);
  std::map<int, uint64_t> expected, carried;
  for (const braid_path& path : planned.value()) expected[path.gpu] = path.size_bytes;
  const auto counted = nlohmann::json::parse(engine.statistics().value()).at("braid").at("paths");
  for (const auto& path : counted) carried[path.at("via")] = path.at("bytes");
  EXPECT_EQ(carried, expected);
  EXPECT_TRUE(engine.paths(99, true, kLarge).value().empty()) << "there is no such GPU";
}

TEST_F(LayerTest, ErrorsCarryTheWordsAndTheDriversResult) {
  Engine engine = open();
  HostBuffer host(driver(), 64);
  DeviceBuffer device(driver(), 64);
  const auto refused = engine.copy(at(device.at()), host.data(), kSize, new_stream());
  EXPECT_EQ(refused.status().cuda_result(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(refused.status().code(), BRAID_ERROR_CUDA);
  EXPECT_NE(refused.status().message().find("CUDA_ERROR_INVALID_VALUE"), std::string::npos);
  const std::array<const void*, 1> one{nullptr};
  const std::array<size_t, 2> two{8, 8};
  EXPECT_EQ(engine.gather(nullptr, one, two, nullptr).status().message(),
            "the lists differ in length");
  EXPECT_FALSE(engine.copy(nullptr, nullptr, 8, nullptr).ok());
  const std::array wrong{braid_option{"BRAID_OPENING", "loud"}};
  EXPECT_NE(Engine::open(wrong).status().message().find("BRAID_OPENING"), std::string::npos);
  EXPECT_EQ(Engine::open(wrong).status().code(), BRAID_ERROR_OPTION);
  Engine moved = std::move(engine);
  EXPECT_NE(engine.prepare().message().find("null"), std::string::npos);
}

}  // namespace
}  // namespace braid::test
