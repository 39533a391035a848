// Under debuggers and profilers every copy is native.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "fixture.h"
#include "support/set_variable.h"

namespace braid::test {
namespace {

// The variable that it sets, and its name.
using Tool = std::pair<std::string, std::string>;

class ToolTest : public LibraryTest, public ::testing::WithParamInterface<Tool> {
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

}  // namespace
}  // namespace braid::test
