// Whose lock is taken over, and what is done later if it is not.
#include "fabric/ofi/robust_locks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "fabric/calling_process.h"
#include "fabric/ofi/domain.h"
#include "fabric/ofi/doorbell.h"
#include "fabric/ofi/shm_region.h"
#include "fabric/wires.h"
#include "host/file.h"

namespace braid::fabric::ofi {
namespace {

/// That has ended, and been waited for.
pid_t ended_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

std::string endpoint_of(pid_t process) {
  return "fi_shm://" + std::to_string(process) + ":test:robust_locks";
}
Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// As a process of this number would hold it, in this PID namespace or in one that looks like it.
bool takes_over_from(pid_t process) {
  constexpr int32_t kProcess = (1 << 22) - 1;
  RobustCalls calls;
  calls.carry_messages_only();
  pthread_spinlock_t lock;
  pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
  const bool is_negative = calls.word() < 0;  // as libc marks locks that are held, on x86
  const int32_t name = (is_negative ? -calls.word() : calls.word()) & ~kProcess;
  const int32_t held = is_negative ? -(name | process) : name | process;
  std::memcpy(const_cast<int*>(&lock), &held, sizeof held);
  const auto take = [&] {
    calls.wait(&lock);
    return int64_t{1};
  };
  return calls.run(RobustCalls::Purpose::kMessage, take) == 1;
}

TEST(RobustLocks, ThatOfAProcessThatHasEndedIsTakenOver) {
  EXPECT_TRUE(takes_over_from(ended_process()));
  EXPECT_FALSE(takes_over_from(getppid())) << "it lives";
}

/// In a PID namespace of another container the number is another process's, which lives.
TEST(RobustLocks, ThatOfAProcessWhoseDoorbellAnswersIsNot) {
  const pid_t number = ended_process();
  const std::string endpoint = endpoint_of(number);
  {
    Doorbell doorbell;
    ASSERT_TRUE(doorbell.add(bytes_of(endpoint)));
    EXPECT_FALSE(takes_over_from(number));
  }
  EXPECT_TRUE(takes_over_from(number));
}

TEST(RobustLocks, ADoorbellThatAKilledProcessHasLeftAnswersNobody) {
  const pid_t child = fork();
  if (child == 0) {
    const std::string endpoint = endpoint_of(getpid());
    Doorbell doorbell;
    if (!doorbell.add(bytes_of(endpoint))) _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(takes_over_from(child));
  Doorbell().add(bytes_of(endpoint_of(child)));  // removes it
}

/// The lock of an endpoint, as another process holds it.
class Held {
 public:
  explicit Held(Bytes endpoint) {
    const std::string path = "/dev/shm/" + file_of(endpoint);
    const File file(open(path.c_str(), O_RDWR | O_CLOEXEC));
    void* const mapped =
        mmap(nullptr, sizeof *region_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    region_ = static_cast<RegionHead*>(mapped);
    pthread_spin_lock(&region_->lock);
  }
  ~Held() {
    pthread_spin_unlock(&region_->lock);
    munmap(region_, sizeof *region_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  RegionHead* region_ = nullptr;
};

/// libfabric keeps it in a list, which the next buffer takes it from.
TEST(RobustLocks, AMessageThatCameBeforeItsBufferWaitsForTheLock) {
  const auto domain = open_domain(shm_quirks(), "").value();
  std::vector<std::byte> buffer(4096);
  const uint32_t region = domain->add_region(buffer, Access::kLocal).value();
  test::Caller caller(domain->address(), "stays");
  caller.wait_for_word();
  Completion come;
  constexpr int kLooks = 1'000;
  while (!caller.has_said_more()) ASSERT_EQ(domain->poll({&come, 1}), 0u);
  for (int look = 0; look < kLooks; ++look) ASSERT_EQ(domain->poll({&come, 1}), 0u);
  {
    const Held held(domain->address());
    EXPECT_FALSE(domain->post_receive(region, buffer, 1));
  }
  ASSERT_TRUE(domain->post_receive(region, buffer, 2));
  for (test::Patience patience(1'000'000); come.event != Event::kReceived;) {
    ASSERT_FALSE(patience.is_over()) << "it is lost";
    (void)domain->poll({&come, 1});
  }
  EXPECT_TRUE(come.ok);
  EXPECT_EQ(come.context, 2u);
  EXPECT_EQ(come.size_bytes, 100u);
  EXPECT_EQ(std::vector(buffer.begin(), buffer.begin() + 100),
            std::vector<std::byte>(100, std::byte{7}));
}

}  // namespace
}  // namespace braid::fabric::ofi
