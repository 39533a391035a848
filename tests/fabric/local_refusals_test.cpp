// What the system or a peer refuses, and what a peer should not have offered: a local domain goes
// on, and says the cause.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <system_error>

#include "fabric/call_filter.h"
#include "fabric/gpu/process_driver.h"
#include "fabric/local/domain.h"
#include "fabric/local/mapping.h"
#include "fabric/progress_thread.h"
#include "fabric/staged_fixture.h"
#include "support/eventually.h"

namespace braid::fabric {
namespace {

/// From now on this thread starts no other one, as at a limit of threads.
bool refuse_threads() {
  using namespace test;
  return filter_calls({load_number(), skip_unless(SYS_clone3, 1), refuse(ENOSYS),
                       skip_unless(SYS_clone, 3), load_argument(0),
                       skip_unless_bit(CLONE_THREAD, 1), refuse(EAGAIN), allow()});
}

size_t open_files() {
  size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

class NoThreadTest : public StagedTest {
 protected:
  NoThreadTest() { wire_name_ = "local_host_to_shared"; }
};

TEST_F(NoThreadTest, AWriteThatWouldNeedOneFailsAndARegionIsRefused) {
  std::vector<std::byte> source = test::some_bytes(1000, 1), host_target(1000);
  const auto target = wire_->memory(1, 1000);
  const auto other = wire_->memory(1, 1000);
  const uint32_t from = writer_->add_region(source, Access::kLocal).value();
  const uint32_t into = owner_->add_region(target->bytes(), Access::kRemoteWrite).value();
  const uint32_t host_into = owner_->add_region(host_target, Access::kRemoteWrite).value();
  if (!refuse_threads()) GTEST_SKIP() << "no filter of system calls";
  post(from, source, owner_->remote_range(into), 0, 1);
  ASSERT_TRUE(wait([&] { return ended_.count(1) == 1; }));
  EXPECT_FALSE(ended_[1]);
  post(from, source, owner_->remote_range(host_into), 0, 2);
  ASSERT_TRUE(wait([&] { return ended_.count(2) == 1; }));
  EXPECT_TRUE(ended_[2]) << "the domain goes on";
  EXPECT_EQ(host_target, source);
  // On a GPU that nothing here has copied to or from.
  use_gpu(2);
  CUdeviceptr there = 0;
  MUST(driver(), cuMemAlloc(&there, 1000));
  const auto refused =
      writer_->add_region({reinterpret_cast<std::byte*>(there), 1000}, Access::kLocal);
  EXPECT_EQ(refused.status().message(),
            "no thread could be started for the copies of GPU 2. Raise the limit of threads of "
            "this user or container");
}

TEST(NoProgressThreadTest, LeavesNothingOpen) {
  if (!refuse_threads()) GTEST_SKIP() << "no filter of system calls";
  const size_t before = open_files();
  EXPECT_THROW((void)with_progress_thread(local::open_domain().value()), std::system_error);
  EXPECT_EQ(open_files(), before);
}

/// A driver that opens a handle of another process as memory of this one, since no process may open
/// its own.
class IpcOfferTest : public braid::test::ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    use_gpu(0);
    MUST(driver(), cuMemAlloc(&opened_, kBytes));
    driver_ = *gpu::process_driver();
    driver_.cuIpcOpenMemHandle = [](CUdeviceptr* address, CUipcMemHandle, unsigned) {
      *address = opened_;
      return CUDA_SUCCESS;
    };
    driver_.cuIpcCloseMemHandle = [](CUdeviceptr address) {
      closed_ += address == opened_ ? 1 : 0;
      return CUDA_SUCCESS;
    };
  }
  local::Mapping::State state_of(uint64_t offset_bytes, uint64_t size_bytes) {
    local::Offer offer;
    offer.kind = local::Offer::kIpc;
    offer.offset_bytes = offset_bytes;
    offer.size_bytes = size_bytes;
    const auto lane = gpu::lane_of(*gpu::process_driver(), nullptr, 0);
    const auto mapping = std::make_shared<local::Mapping>(driver_, offer, File());
    auto state = local::Mapping::State::kComing;
    EXPECT_TRUE(braid::test::eventually([&] {
      state = mapping->prepare(*lane);
      return state != local::Mapping::State::kComing;
    }));
    EXPECT_TRUE(braid::test::eventually([&] { return mapping->let_go(); }));
    return state;
  }

  static constexpr size_t kBytes = 2 << 20;
  static inline CUdeviceptr opened_ = 0;
  static inline std::atomic<int> closed_{0};
  cuda::Driver driver_;
};

TEST_F(IpcOfferTest, WhatLiesOutsideTheAllocationIsRefused) {
  using State = local::Mapping::State;
  EXPECT_EQ(state_of(0, kBytes), State::kReady);
  EXPECT_EQ(state_of(kBytes - 10, 10), State::kReady);
  EXPECT_EQ(state_of(0, kBytes + 1), State::kRefused);
  EXPECT_EQ(state_of(kBytes - 10, 11), State::kRefused);
  EXPECT_EQ(state_of(~uint64_t{0}, 1), State::kRefused);
  EXPECT_EQ(closed_, 5) << "what was opened is closed";
}

TEST(LocalStrangerTest, AnotherUsersEngineIsRefusedWithTheCause) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  const pid_t process = fork();
  if (process == 0) {
    constexpr uid_t kNobody = 65534;
    if (setuid(kNobody) != 0) _exit(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto domain = local::open_domain().value();
    const Bytes address = domain->address();
    if (::write(ends[1], address.data(), address.size()) < 0) _exit(1);
    for (;;) pause();
  }
  close(ends[1]);
  std::byte address[kAddressBytesMax];
  const ssize_t size_bytes = read(ends[0], address, sizeof address);
  close(ends[0]);
  if (size_bytes > 0) {
    const auto domain = local::open_domain().value();
    EXPECT_EQ(
        domain->connect(Bytes(address, static_cast<size_t>(size_bytes))).status().message(),
        "local: the peer is another user's process. Run both as one user, or use a provider of "
        "libfabric");
  }
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
  if (size_bytes <= 0) GTEST_SKIP() << "only root can be another user";
}

}  // namespace
}  // namespace braid::fabric
