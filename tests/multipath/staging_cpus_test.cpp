// On which CPUs the threads of staging run.
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "support/server.h"

namespace braid::multipath {
namespace {

// The masks of this process's threads of that name.
std::vector<cpu_set_t> masks_of(const std::string& name) {
  std::vector<cpu_set_t> masks;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm"), found);
    cpu_set_t mask;
    const pid_t thread = std::stoi(task.path().filename());
    if (found == name && sched_getaffinity(thread, sizeof mask, &mask) == 0) masks.push_back(mask);
  }
  return masks;
}

void stay_on(int count, const cpu_set_t& all) {
  cpu_set_t some;
  CPU_ZERO(&some);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < count; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &some);
  ASSERT_EQ(sched_setaffinity(0, sizeof some, &some), 0);
}

class StagingCpusTest : public test::ServerTest {
 protected:
  static constexpr int kThreads = 3;

  void SetUp() override {
    ServerTest::SetUp();
    ASSERT_EQ(sched_getaffinity(0, sizeof all_, &all_), 0);
  }
  void TearDown() override { EXPECT_EQ(sched_setaffinity(0, sizeof all_, &all_), 0); }

  // The masks of the threads that a first copy, which `copying` calls, leaves behind.
  template <typename Copying>
  std::vector<cpu_set_t> masks_after(const Copying& copying) {
    constexpr uint64_t kSize = 8 << 20;
    Options options = every_size();
    options.pageable_threads = kThreads;
    const auto engine = open_engine(options);
    const CUstream stream = new_stream();
    test::DeviceBuffer device(driver(), kSize);
    copying([&] {
      use_gpu(0);
      std::vector<uint8_t> host(kSize);
      const auto staged =
          engine->stage({Direction::kHostToDevice, host.data(), device.at(), kSize, stream}, true);
      ASSERT_TRUE(staged.has_value());
      EXPECT_EQ(*staged, CUDA_SUCCESS);
    });
    return masks_of("braid-stage");
  }
  void expect_all(const std::vector<cpu_set_t>& masks, const cpu_set_t& expected) {
    EXPECT_EQ(masks.size(), size_t{kThreads});
    for (const cpu_set_t& mask : masks)
      EXPECT_TRUE(CPU_EQUAL(&mask, &expected)) << CPU_COUNT(&mask);
  }

  cpu_set_t all_;
};

// A program may copy first in a thread that it has bound to one CPU, as those of a data loader.
TEST_F(StagingCpusTest, AreThoseThatWereCountedWhoeverCopiesFirst) {
  if (CPU_COUNT(&all_) < 2) GTEST_SKIP() << "one CPU";
  const auto masks = masks_after([&](const auto& copy) {
    std::thread([&] {
      stay_on(1, all_);
      copy();
    }).join();
  });
  expect_all(masks, all_);
}

TEST_F(StagingCpusTest, AreThoseThatWereCountedWhereTheMainThreadHasTooFewByNow) {
  if (CPU_COUNT(&all_) < 2) GTEST_SKIP() << "one CPU";
  const auto masks = masks_after([&](const auto& copy) {
    stay_on(1, all_);
    copy();
  });
  expect_all(masks, all_);
}

// As a rank does that binds itself to the CPUs near its GPU once it has chosen that.
TEST_F(StagingCpusTest, AreThoseOfAMainThreadThatHasBoundItself) {
  if (CPU_COUNT(&all_) < kThreads + 2) GTEST_SKIP() << "too few CPUs to leave some out";
  const auto masks = masks_after([&](const auto& copy) {
    stay_on(kThreads + 1, all_);
    copy();
  });
  cpu_set_t now;
  ASSERT_EQ(sched_getaffinity(0, sizeof now, &now), 0);
  expect_all(masks, now);
}

}  // namespace
}  // namespace braid::multipath
