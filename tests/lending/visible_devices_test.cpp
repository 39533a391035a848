// Which devices the driver is shown when GPUs are lent.
#include "lending/visible_devices.h"

#include <gtest/gtest.h>

namespace braid::lending {
namespace {

const std::vector<LendableGpu> kGpus{
    {0, "GPU-aa00"}, {1, "GPU-aa11"}, {2, "GPU-bb22"}, {3, "GPU-bb33"}};

std::string widened(const char* visible, const std::vector<LendableGpu>& gpus = kGpus) {
  const auto devices = widen(visible, gpus);
  return devices ? std::to_string(devices->own_count) + " of " + devices->visible : "as it is";
}

TEST(Lend, TheProgramsDevicesComeFirst) {
  EXPECT_EQ(widened("3"), "1 of 3,0,1,2");
  EXPECT_EQ(widened("2,0"), "2 of 2,0,1,3");
  EXPECT_EQ(widened("3", {kGpus[1]}), "1 of 3,1");
}

TEST(Lend, UuidsAreAnsweredWithUuids) {
  EXPECT_EQ(widened("GPU-aa11"), "1 of GPU-aa11,GPU-aa00,GPU-bb22,GPU-bb33");
  EXPECT_EQ(widened("GPU-bb3,GPU-aa0"), "2 of GPU-bb3,GPU-aa0,GPU-aa11,GPU-bb22");
}

TEST(Lend, WithNothingToLendTheListStays) {
  EXPECT_EQ(widened("0,1,2,3"), "as it is");
  EXPECT_EQ(widened("3", {kGpus[3]}), "as it is");
  EXPECT_EQ(widened("3", {}), "as it is");
}

TEST(Lend, AListThatIsNotUnderstoodStays) {
  for (const char* visible :
       {"", "-1", "none", "3x", "0,GPU-aa11", "GPU-aa11,0", "0,,1", "0,", "MIG-GPU-aa00/1/0"})
    EXPECT_EQ(widened(visible), "as it is") << visible;
}

TEST(Lend, TheVariableReadsAsWritten) {
  const std::string text = format_lendable(kGpus);
  EXPECT_EQ(text, "0:GPU-aa00,1:GPU-aa11,2:GPU-bb22,3:GPU-bb33");
  EXPECT_EQ(parse_lendable(text).value(), kGpus);
  EXPECT_TRUE(parse_lendable("").value().empty());
  for (const char* wrong : {"all", "1", "1:", "x:GPU-aa00", "-1:GPU-aa00", "0:GPU-aa00,"}) {
    const auto gpus = parse_lendable(wrong);
    ASSERT_FALSE(gpus.ok()) << wrong;
    EXPECT_NE(gpus.status().message().find("BRAID_LEND"), std::string::npos);
  }
}

TEST(Lend, MigInstancesAreFound) {
  EXPECT_EQ(find_mig("0, MIG-1234"), "MIG-1234");
  EXPECT_EQ(find_mig("GPU-aa00,1"), "");
}

}  // namespace
}  // namespace braid::lending
