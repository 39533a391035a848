// What the host has left, read from folders that look like those of a kernel.
#include "host/memory_left.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kGib = 1 << 30;

class HostMemory : public ::testing::Test {
 protected:
  HostMemory() {
    root_ = fs::temp_directory_path() / ("braid-host-memory-" + std::to_string(getpid()));
    fs::remove_all(root_);
    put("proc/meminfo",
        "MemTotal:       67108864 kB\nMemFree:         1048576 kB\n"
        "MemAvailable:   33554432 kB\nBuffers:               1 kB\n");
  }
  ~HostMemory() override { fs::remove_all(root_); }

  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  uint64_t left() const { return memory_left_bytes(root_); }

  fs::path root_;
};

TEST_F(HostMemory, WithoutGroupsIsWhatTheKernelSays) { EXPECT_EQ(left(), 32 * kGib); }

TEST_F(HostMemory, IsNotGivenWhereThereIsLess) {
  EXPECT_TRUE(check_memory_left(4096).ok());
  EXPECT_TRUE(check_memory_left(32 * kGib, root_).ok());
  const Status refused = check_memory_left(33 * kGib, root_);
  EXPECT_NE(refused.message().find("the host has 32G left"), std::string::npos)
      << refused.message();
  put("proc/self/cgroup", "0::/job\n");
  put("sys/fs/cgroup/job/memory.max", "8589934592\n");
  const Status limited = check_memory_left(9 * kGib, root_);
  EXPECT_NE(limited.message().find("this process's control groups have 8G left"), std::string::npos)
      << limited.message();
}

TEST_F(HostMemory, IsGivenWhereOthersShrinkForIt) {
  put("proc/meminfo", "MemAvailable:   33554432 kB\nSwapFree:  1048576 kB\n");
  EXPECT_TRUE(check_memory_left(33 * kGib, root_).ok());
  EXPECT_FALSE(check_memory_left(34 * kGib, root_).ok());
  put("proc/spl/kstat/zfs/arcstats", "9 1 0x01\nname type data\nhits 4 7\nsize 4 1073741824\n");
  EXPECT_TRUE(check_memory_left(34 * kGib, root_).ok());
}

TEST_F(HostMemory, IsLimitedByTheGroupOfVersion2) {
  put("proc/self/cgroup", "0::/user.slice/job\n");
  put("sys/fs/cgroup/user.slice/job/memory.max", "8589934592\n");
  put("sys/fs/cgroup/user.slice/job/memory.current", "3221225472\n");
  EXPECT_EQ(left(), 5 * kGib);
  // Cached files are given up for whoever needs memory.
  put("sys/fs/cgroup/user.slice/job/memory.stat",
      "anon 1\ninactive_file 1073741824\nactive_file 536870912\nfile 9\n");
  EXPECT_EQ(left(), 6 * kGib + kGib / 2);
  put("sys/fs/cgroup/user.slice/job/memory.current", "99999999999\n");
  EXPECT_EQ(left(), 0u);
  put("sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  EXPECT_EQ(left(), 32 * kGib);
}

TEST_F(HostMemory, IsLimitedByTheGroupsAround) {
  put("proc/self/cgroup", "0::/user.slice/job\n");
  put("sys/fs/cgroup/user.slice/job/memory.max", "max\n");
  put("sys/fs/cgroup/user.slice/memory.max", "4294967296\n");
  put("sys/fs/cgroup/user.slice/memory.current", "1073741824\n");
  EXPECT_EQ(left(), 3 * kGib);
}

// The path is that of the host, and the container sees its own group at the top.
TEST_F(HostMemory, IsLimitedByTheContainerOfVersion1) {
  put("proc/self/cgroup",
      "12:cpuset:/docker/0123\n5:memory:/docker/0123\n1:name=systemd:/docker/0123\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
  put("sys/fs/cgroup/memory/memory.stat", "cache 7\ntotal_inactive_file 536870912\n");
  EXPECT_EQ(left(), kGib + kGib / 2);
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(left(), 32 * kGib);
}

TEST_F(HostMemory, WhatCannotBeReadLimitsNothing) {
  put("proc/self/cgroup", "nonsense\n0::\n0::/../..\n");
  EXPECT_EQ(left(), 32 * kGib);
  put("proc/meminfo", "MemTotal: many kB\n");
  EXPECT_GT(left(), uint64_t{1} << 60);
}

TEST(HostMemoryHere, IsMoreThanNothing) { EXPECT_GT(memory_left_bytes(), 0u); }

}  // namespace
}  // namespace braid
