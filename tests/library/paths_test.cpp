// The paths of a copy, as the engine tells them before the copy is made.
#include <array>
#include <map>
#include <span>

#include "fixture.h"

namespace braid::test {
namespace {

using PathsTest = LibraryTest;

TEST_F(PathsTest, AreThoseThatACopyTakes) {
  constexpr size_t kLarge = 32 << 20;
  HostBuffer host(driver(), kLarge);
  DeviceBuffer device(driver(), kLarge);
  size_t count = 99;
  std::array<braid_path, 16> paths{};
  const auto ask = [&](int gpu, size_t size_bytes) {
    EXPECT_EQ(braid_paths(engine_, gpu, 1, size_bytes, paths.data(), paths.size(), &count),
              BRAID_OK);
    uint64_t all_bytes = 0;
    for (size_t i = 0; i < count; ++i) all_bytes += paths[i].size_bytes;
    return all_bytes;
  };
  EXPECT_EQ(ask(0, kLarge), kLarge);
  ASSERT_GT(count, 1u);
  EXPECT_EQ(paths[0].gpu, 0);
  EXPECT_EQ(paths[0].nvlink_gbps, 0);
  for (size_t i = 1; i < count; ++i) {
    EXPECT_NE(paths[i].gpu, 0);
    EXPECT_GT(paths[i].nvlink_gbps, paths[i].pcie_gbps);
  }
  const std::span planned(paths.data(), count);
  ASSERT_EQ(braid_copy(engine_, at(device), host.data(), kLarge, stream_, 0, &outcome_), BRAID_OK);
  synchronize(stream_);
  std::map<int, uint64_t> expected, carried;
  for (const braid_path& path : planned) expected[path.gpu] = path.size_bytes;
  const auto counted = statistics().at("paths");
  for (const auto& path : counted) carried[path.at("via")] = path.at("bytes");
  EXPECT_EQ(carried, expected);
  EXPECT_EQ(ask(0, 1000), 1000u);
  EXPECT_EQ(count, 1u) << "a small copy is the driver's";
  EXPECT_EQ(ask(99, kSize), 0u) << "there is no such GPU";
  EXPECT_EQ(braid_paths(engine_, 0, 1, kSize, nullptr, 1, &count), BRAID_ERROR_ARGUMENT);
}

}  // namespace
}  // namespace braid::test
