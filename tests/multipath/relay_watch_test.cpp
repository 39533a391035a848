// When the watch looks, and when it sleeps. Times are the machine's: generous where something must
// happen, and where nothing may, a few times what the watch takes between two looks.
#include "multipath/relay_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace braid::multipath {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kQuiet{200};

class RelayWatchTest : public ::testing::Test {
 protected:
  RelayWatchTest() {
    driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
  }
  void TearDown() override { watch.close(); }

  bool reaches(int count) {
    const auto deadline = steady_clock::now() + std::chrono::seconds(10);
    while (looks < count && steady_clock::now() < deadline)
      std::this_thread::sleep_for(milliseconds(1));
    return looks >= count;
  }
  bool is_quiet() {
    const int before = looks;
    std::this_thread::sleep_for(kQuiet);
    return looks == before;
  }

  cuda::Driver driver;
  std::atomic<int> looks{0};
  std::atomic<int> busy_looks{0};  // that find something under way
  RelayWatch watch{driver, [this](uint64_t) {
                     ++looks;
                     return busy_looks > 0 && busy_looks-- > 0;
                   }};
};

TEST_F(RelayWatchTest, LooksWhileTransfersAreUnderWayAndThenRests) {
  ASSERT_TRUE(watch.start());
  ASSERT_TRUE(reaches(1)) << "one look before it rests";
  EXPECT_TRUE(is_quiet());
  for (int round = 0; round < 2; ++round) {
    const int before = looks;
    busy_looks = 3;
    watch.begin();
    EXPECT_TRUE(reaches(before + 3));
    EXPECT_TRUE(reaches(before + 5)) << "one finds nothing, and one more comes before it rests";
    EXPECT_TRUE(is_quiet());
    EXPECT_EQ(looks, before + 5);
  }
}

TEST_F(RelayWatchTest, EveryTransferIsLookedAtHoweverItMeetsTheWatch) {
  ASSERT_TRUE(watch.start());
  for (int transfer = 0; transfer < 20; ++transfer) {
    const int before = looks;
    watch.begin();
    ASSERT_TRUE(reaches(before + 1)) << "transfer " << transfer;
    std::this_thread::sleep_for(milliseconds(transfer * 7 % 60));
  }
}

TEST_F(RelayWatchTest, EndsAtOnceAlsoBetweenTwoLooks) {
  ASSERT_TRUE(watch.start());
  ASSERT_TRUE(reaches(1));
  busy_looks = 1 << 20;
  watch.begin();
  ASSERT_TRUE(reaches(3));
  watch.close();
  EXPECT_TRUE(is_quiet());
  watch.close();
}

TEST_F(RelayWatchTest, IsTheParentsInAForkedChild) {
  ASSERT_TRUE(watch.start());
  ASSERT_TRUE(reaches(1));
  const pid_t child = fork();
  if (child == 0) {
    watch.begin();
    watch.close();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const int before = looks;
  watch.begin();
  EXPECT_TRUE(reaches(before + 1)) << "the parent's goes on";
}

}  // namespace
}  // namespace braid::multipath
