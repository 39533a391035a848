// The CPUs that a process may use, by folders that look like those of a kernel.
#include "host/usable_cpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

namespace braid {
namespace {

namespace fs = std::filesystem;

class UsableCpusTest : public ::testing::Test {
 protected:
  UsableCpusTest() {
    root_ = fs::temp_directory_path() / ("braid-usable-cpus-" + std::to_string(getpid()));
    fs::remove_all(root_);
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) all_ = CPU_COUNT(&mask);
  }
  ~UsableCpusTest() override { fs::remove_all(root_); }

  void SetUp() override {
    if (all_ < 2) GTEST_SKIP() << "one CPU cannot be limited";
  }
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  // A quota of so many microseconds in 100 ms.
  void put_quota(const std::string& group, int quota_us) const {
    put("sys/fs/cgroup/" + group + "cpu.max", std::to_string(quota_us) + " 100000\n");
  }
  int count() const { return usable_cpus(root_).count; }

  fs::path root_;
  int all_ = 0;
};

TEST_F(UsableCpusTest, WithoutGroupsAreThoseOfTheMask) {
  const UsableCpus all = usable_cpus(root_);
  EXPECT_EQ(all.count, all_);
  cpu_set_t few;
  CPU_ZERO(&few);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&few) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all.mask)) CPU_SET(cpu, &few);
  std::thread([&] {  // the mask is a thread's
    ASSERT_EQ(sched_setaffinity(0, sizeof few, &few), 0);
    const UsableCpus cpus = usable_cpus(root_);
    EXPECT_EQ(cpus.count, 1);
    EXPECT_TRUE(CPU_EQUAL(&cpus.mask, &few));
  })
      .join();
}

TEST_F(UsableCpusTest, AreLimitedByTheQuotaOfVersion2) {
  put("proc/self/cgroup", "0::/user.slice/job\n");
  put_quota("user.slice/job/", 190000);
  EXPECT_EQ(count(), 1) << "rounded down";
  const UsableCpus cpus = usable_cpus(root_);
  EXPECT_EQ(CPU_COUNT(&cpus.mask), all_) << "a quota is of no CPU in particular";
  put_quota("user.slice/job/", 20000);
  EXPECT_EQ(count(), 1) << "less than one";
  put_quota("user.slice/job/", all_ * 100000 + 1);
  EXPECT_EQ(count(), all_);
  put("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
  EXPECT_EQ(count(), all_);
}

TEST_F(UsableCpusTest, AreLimitedByTheGroupsAround) {
  put("proc/self/cgroup", "0::/user.slice/job\n");
  put("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
  put_quota("user.slice/", 100000);
  EXPECT_EQ(count(), 1);
}

// The path is that of the host, and the container sees its own group at the top.
TEST_F(UsableCpusTest, AreLimitedByTheContainerOfVersion1) {
  put("proc/self/cgroup", "12:cpuset:/docker/0123\n5:cpu,cpuacct:/docker/0123\n");
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(count(), all_) << "of what period?";
  put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(count(), 1);
  put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(count(), all_);
}

TEST_F(UsableCpusTest, WhatCannotBeReadLimitsNothing) {
  put("proc/self/cgroup", "nonsense\n0::\n0::/../..\n");
  put("sys/fs/cgroup/cpu.max", "many 100000\n");
  EXPECT_EQ(count(), all_);
  put("sys/fs/cgroup/cpu.max", "1000 0\n");
  EXPECT_EQ(count(), all_);
}

}  // namespace
}  // namespace braid
