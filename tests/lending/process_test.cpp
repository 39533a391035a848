// `braid run --lend`: programs that are given some GPUs, and helped by the others.
#include "tests/lending/lending.h"

namespace braid::test {
namespace {

const std::string kDevices = BRAID_TEST_CLIENTS "/client_devices";
const std::string kDevicesLinked = BRAID_TEST_CLIENTS "/client_devices_linked";
constexpr uint64_t kDevicesBytes = uint64_t{64} << 20;

// As nvidia-smi would write it for the emulated GPU (docs/emulator.md).
std::string uuid_of(int gpu) {
  return "GPU-62726169-6468-3230-7838-00000000000" + std::to_string(gpu);
}

class Lend : public ::testing::TestWithParam<const char*> {
 protected:
  Words program() const {
    const std::string way = GetParam();
    return joined({way == "linked" ? kDevicesLinked : kDevices, way}, pci_addresses());
  }
};

// Whatever the program asks, it hears what it would hear without braid; and its copy is helped.
TEST_P(Lend, TheProgramSeesItsOwnGpuAndIsHelpedByAll) {
  const ChildResult native = natively(program(), visible("3"));
  ASSERT_EQ(native.exit_code, 0) << native.errors;
  EXPECT_NE(native.output.find("count 0 1\n"), std::string::npos) << native.output;
  const ChildResult lent = with_braid(program(), {"--lend", "all"}, visible("3"));
  EXPECT_EQ(lent.output, native.output);
  const auto statistics = only_statistics(lent);
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoD_v2", "accelerated"), (Counted{1, kDevicesBytes}));
  EXPECT_EQ(path_bytes(statistics), kDevicesBytes);
  EXPECT_EQ(paths_to(statistics, 0), 8u) << statistics;
}

INSTANTIATE_TEST_SUITE_P(Process, Lend,
                         ::testing::Values("dlsym", "dlsym_old", "default", "proc", "proc_v1",
                                           "proc_nested", "linked"),
                         [](const auto& way) { return std::string(way.param); });

nlohmann::json devices_statistics(const Words& options, const std::string& devices) {
  const Words program = joined({kDevices, "dlsym"}, pci_addresses());
  const ChildResult native = natively(program, visible(devices));
  const ChildResult child = with_braid(program, options, visible(devices));
  EXPECT_EQ(child.output, native.output) << devices;
  return only_statistics(child);
}

TEST(LendProcess, AListLendsOnlyThose) {
  const auto statistics = devices_statistics({"--lend", "3,1," + uuid_of(6)}, "3");
  EXPECT_EQ(paths_to(statistics, 0), 3u) << statistics;
}

TEST(LendProcess, GpusMayBeNamedByUuid) {
  const auto statistics = devices_statistics({"--lend", "all"}, uuid_of(5) + "," + uuid_of(2));
  EXPECT_EQ(paths_to(statistics, 0), 8u) << statistics;
}

TEST(LendProcess, WithEveryGpuVisibleThereIsNothingToLend) {
  EXPECT_EQ(paths_to(devices_statistics({"--lend", "all"}, ""), 0), 8u);
  EXPECT_EQ(paths_to(devices_statistics({"--lend", "all"}, "7,6,5,4,3,2,1,0"), 0), 8u);
}

TEST(LendProcess, AListThatEndsEarlyIsReadAsNatively) {
  devices_statistics({"--lend", "all"}, "3,99");
  const Words program{kDevices, "dlsym"};
  for (const char* nothing : {"99", "-1", "none"}) {
    const ChildResult native = natively(program, visible(nothing));
    const ChildResult child = with_braid(program, {"--lend", "all"}, visible(nothing));
    EXPECT_EQ(child.output, native.output) << nothing;
    EXPECT_EQ(child.exit_code, native.exit_code) << nothing;
  }
}

// A launcher that sees every GPU and gives each worker one, as inference engines do.
TEST(LendProcess, AWorkerWithItsOwnListIsLentTheOthers) {
  const std::string launcher = "for gpu in 0 5; do CUDA_VISIBLE_DEVICES=$gpu " + kScenarios +
                               " copy_once || exit 1; done; echo ${CUDA_VISIBLE_DEVICES-unset}";
  const ChildResult child = with_braid({"sh", "-c", launcher}, {"--lend", "all"}, visible(""));
  EXPECT_EQ(child.exit_code, 0) << child.errors;
  EXPECT_EQ(child.output, "unset\n");
  const auto all = child.statistics();
  ASSERT_EQ(all.size(), 2u) << child.errors;
  for (const auto& statistics : all) EXPECT_GT(paths_to(statistics, 0), 1u) << statistics;
}

TEST(LendProcess, WithoutLendingOneGpuHasNoHelp) {
  const auto statistics = only_statistics(with_braid({kScenarios, "copy_once"}, {}, visible("3")));
  EXPECT_EQ(counted(statistics, "cuMemcpyHtoDAsync_v2", "no_relay").calls, 1u) << statistics;
}

TEST(LendProcess, RelaysAreNumberedAsBraidSeesThem) {
  const auto statistics = devices_statistics({"--lend", "all", "--relays", "7"}, "3");
  EXPECT_EQ(paths_to(statistics, 0), 2u) << statistics;
}

TEST(LendProcess, WhatCannotBeLentIsSaid) {
  const auto expect_refusal = [](const std::string& lend, const std::string& devices,
                                 const std::string& part) {
    const ChildResult child = with_braid({"true"}, {"--lend", lend}, visible(devices));
    EXPECT_EQ(child.exit_code, 125) << lend;
    EXPECT_TRUE(child.errors.starts_with("braid: ")) << child.errors;
    EXPECT_NE(child.errors.find(part), std::string::npos) << part << " in " << child.errors;
  };
  expect_refusal("8", "3", "'8' is none of the 8 GPUs");
  expect_refusal("1,x", "3", "'x' is none of");
  expect_refusal("1,,2", "3", "'' is none of");
  expect_refusal("none", "3", "Write all, or numbers from 0 to 7");
  expect_refusal("GPU-1234", "3", "'GPU-1234'");
  expect_refusal("all", "MIG-1234", "MIG instance 'MIG-1234'");
}

TEST(LendProcess, AVariableThatCannotBeReadLendsNothing) {
  Environment environment = visible("3");
  environment["BRAID_LEND"] = "everything";
  const ChildResult child = with_braid({kScenarios, "copy_once"}, {}, environment);
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_NE(child.errors.find("braid: BRAID_LEND: 'everything'"), std::string::npos)
      << child.errors;
}

}  // namespace
}  // namespace braid::test
