// What an engine of the program's own does beside copies, as under `braid run`: it answers
// `braid waits`, and shows the statistics at an interval.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "fixture.h"
#include "support/child.h"
#include "support/eventually.h"
#include "support/gate.h"
#include "support/own_folder.h"

namespace braid::test {
namespace {

class ThreadTest : public LibraryTest {
 protected:
  static constexpr uint64_t kSize = 32 << 20;  // over several paths

  static std::string waits() {
    const char* told = std::getenv("BRAID_TEST_COMMAND");
    return run_child({told != nullptr ? told : BRAID_COMMAND, "waits", std::to_string(getpid())})
        .output;
  }

  void copy(HostBuffer& host, const DeviceBuffer& device) {
    ASSERT_EQ(braid_copy(engine_, at(device), host.data(), kSize, stream_, 0, &outcome_), BRAID_OK)
        << braid_last_error();
    EXPECT_STREQ(outcome_.reason, "accelerated");
  }
};

TEST_F(ThreadTest, AnswersWhatTheProcessWaitsFor) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  const std::string idle = "nothing here waits for braid\n";
  std::string said;
  const auto says = [&](const std::string& text) {
    return eventually([&] { return (said = waits()).find(text) != std::string::npos; });
  };
  ASSERT_TRUE(says(idle)) << said;
  Gate gate(driver());
  gate.hold(stream_);
  copy(host, device);
  EXPECT_TRUE(says("GPU 0 h2d " + std::to_string(kSize) + " bytes")) << said;
  gate.open();
  synchronize(stream_);
}

class IntervalTest : public ThreadTest {
 protected:
  void SetUp() override {
    setenv("BRAID_STATS", "json", 1);
    setenv("BRAID_STATS_FILE", path_.c_str(), 1);
    setenv("BRAID_STATS_INTERVAL", "1", 1);
    ThreadTest::SetUp();
  }

  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const OwnFolder folder_;
  const std::string path_ = folder_.file("statistics");
};

TEST_F(IntervalTest, AFileIsRewrittenWhileTheProgramRuns) {
  HostBuffer host(driver(), kSize);
  DeviceBuffer device(driver(), kSize);
  copy(host, device);
  synchronize(stream_);
  EXPECT_TRUE(eventually([&] {
    return text().find("\"accelerated\":{\"calls\":1") != std::string::npos;
  })) << text();
}

}  // namespace
}  // namespace braid::test
