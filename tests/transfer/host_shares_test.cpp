// The table by which engines of one host share its NICs: who uses which, who has died, and who
// stands still.
#include "transfer/shares.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "host/file.h"

namespace braid::transfer {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kPatienceNs = 60'000 * kMs;

class HostSharesTest : public testing::Test {
 protected:
  ~HostSharesTest() override { shm_unlink(name_.c_str()); }

  static constexpr size_t kShm = 0, kTcp = 1, kStagedTcp = 2, kStagedShm = 3, kLocalRail = 4;
  static std::vector<RailDescription> rails(const std::string& address) {
    return {{"shm", "this host", 5, {}, {}},
            {"tcp;ofi_rxm", address, 1, {}, {}},
            {"tcp;ofi_rxm+gpu", address, 1, {}, {}},
            {"shm+gpu", "this host", 5, {}, {}},
            {"local", "this host", 5, {}, {}}};
  }
  /// An engine with a slice in flight over one of its rails.
  struct Engine {
    explicit Engine(const std::string& name, const std::string& address = "10.0.0.1",
                    size_t used_rail = kTcp)
        : used(used_rail) {
      auto opened = HostShares::open(name, rails(address));
      EXPECT_TRUE(opened.ok()) << opened.status().message();
      shares = std::move(opened).value();
      for (size_t i = 0; i < rails(address).size(); ++i) {
        numbers.push_back(scheduler.add_rail({1}));
        const uint32_t path =
            scheduler.add_path({7 + i, numbers[i], scheduler.add_rail({1}), 1, 5});
        ways.push_back(scheduler.add_ways({{path, 0}}));
      }
    }
    uint64_t begin(size_t rail) {
      RequestSpec request;
      request.id = ++requests;
      request.peer = 7 + rail;
      request.ways = ways[rail];
      request.size_bytes = 4096;
      scheduler.add(std::move(request), monotonic_ns());
      return scheduler.next(monotonic_ns())->id;
    }
    void begin() { posting = begin(used); }
    void end() { scheduler.ended(posting, Ending::kDone, monotonic_ns()); }
    double share() { return share(used); }
    double share(size_t rail) {
      shares->look(scheduler, numbers, monotonic_ns());
      return scheduler.share(numbers[rail]).share;
    }
    /// Whether both take less than all within ten beats.
    bool has_neighbour(Engine& other) {
      for (int beat = 0; beat < 10; ++beat) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        if (other.share() < 1 || share() < 1) return true;
      }
      return false;
    }
    /// Whether its share becomes `wanted` within a while. `other` beats meanwhile: it would count
    /// as stopped otherwise.
    bool comes_to(double wanted, Engine* other = nullptr, std::optional<size_t> rail = {}) {
      for (const uint64_t end_ns = monotonic_ns() + kPatienceNs; monotonic_ns() < end_ns;) {
        if (other != nullptr) (void)other->share();
        if (share(rail.value_or(used)) == wanted) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return false;
    }

    size_t used;
    Scheduler scheduler;
    std::unique_ptr<HostShares> shares;
    std::vector<uint32_t> numbers, ways;
    uint64_t posting = 0, requests = 0;
  };
  /// A process that has something in flight all the time.
  pid_t start_process() {
    const pid_t process = fork();
    if (process != 0) return process;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Engine engine(name_);
    engine.begin();
    for (;;) {
      (void)engine.share();
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }
  static void kill_process(pid_t process) {
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
  }

  const std::string name_ = "/braid-test-shares-" + std::to_string(getpid());
};

TEST_F(HostSharesTest, EnginesThatAreActiveShareARailAndOthersDoNot) {
  Engine one(name_), two(name_), elsewhere(name_, "10.0.0.2");
  one.begin();
  elsewhere.begin();
  EXPECT_EQ(one.share(), 1);
  (void)elsewhere.share();
  two.begin();
  EXPECT_TRUE(one.comes_to(0.5, &two));
  EXPECT_LT(one.shares->next_ns(), monotonic_ns() + 2 * kMs) << "it looks again";
  two.end();
  for (int beat = 0; beat < 2; ++beat) {  // what it has delivered, and then that it is idle
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    (void)two.share();
  }
  EXPECT_EQ(two.shares->next_ns(), kNever);
  EXPECT_TRUE(one.comes_to(1));
}

/// A NIC has a rail of each provider, and one more for memory of GPUs.
TEST_F(HostSharesTest, AllRailsOfANicAreOne) {
  Engine one(name_), two(name_, "10.0.0.1", kStagedTcp);
  one.begin();
  two.begin();
  EXPECT_TRUE(one.comes_to(0.5, &two));
  EXPECT_TRUE(two.comes_to(0.5, &one));
}

TEST_F(HostSharesTest, WhoUsesANicByTwoRailsHasNoLargerPartOfIt) {
  Engine one(name_), two(name_);
  one.begin();
  two.begin();
  two.begin(kStagedTcp);
  EXPECT_TRUE(one.comes_to(0.5, &two));
  EXPECT_TRUE(two.comes_to(0.25, &one));
  EXPECT_TRUE(two.comes_to(0.25, &one, kStagedTcp));
  EXPECT_TRUE(one.comes_to(0.5, &two, kStagedTcp)) << "it does not use it, and may begin to";
}

TEST_F(HostSharesTest, WithinAHostThereIsNoNicToShare) {
  for (const size_t rail : {kShm, kStagedShm, kLocalRail}) {
    Engine one(name_, "10.0.0.1", rail), two(name_, "10.0.0.1", rail);
    one.begin();
    two.begin();
    (void)one.share();
    (void)two.share();
    EXPECT_FALSE(one.has_neighbour(two)) << rail;
  }
}

/// As `braid rails` shows it.
TEST_F(HostSharesTest, WhatAnEngineMovesOverANicIsShownOnce) {
  Engine one(name_);
  one.begin();
  one.begin(kStagedTcp);
  (void)one.share();
  const auto loads = HostShares::loads(name_, rails("10.0.0.1")).value();
  ASSERT_EQ(loads.size(), 1u);
  EXPECT_EQ(loads.front().rail, kTcp);
  EXPECT_TRUE(loads.front().is_active);
}

TEST_F(HostSharesTest, WhoIsAloneIsNotWoken) {
  Engine one(name_), elsewhere(name_, "10.0.0.2");
  one.begin();
  (void)one.share();
  EXPECT_EQ(one.shares->next_ns(), kNever);
}

TEST_F(HostSharesTest, AKilledProcessLeavesItsShareAndItsRow) {
  Engine one(name_);
  one.begin();
  for (size_t i = 0; i < SharedTable::kRows + 8; ++i) {  // more than there are rows
    const pid_t other = start_process();
    EXPECT_TRUE(one.comes_to(0.5)) << i;
    kill_process(other);
    EXPECT_TRUE(one.comes_to(1)) << i;
    if (HasFailure()) return;
  }
}

TEST_F(HostSharesTest, AStoppedProcessHoldsNobodyBackAndComesBack) {
  Engine one(name_);
  one.begin();
  const pid_t other = start_process();
  EXPECT_TRUE(one.comes_to(0.5));
  kill(other, SIGSTOP);
  EXPECT_TRUE(one.comes_to(1));
  kill(other, SIGCONT);
  EXPECT_TRUE(one.comes_to(0.5));
  kill_process(other);
}

TEST_F(HostSharesTest, WhatIsWrittenThereByMistakeHurtsNobody) {
  Engine one(name_), two(name_);
  one.begin();
  two.begin();
  (void)two.share();
  auto table = SharedTable::open(name_, 0x3230726168736220, 8 + 16 * 32).value();
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63}) {
    for (size_t word = 0; word < 1 + 16 * 4; ++word)
      static_cast<std::atomic<uint64_t>*>(table->row(1))[word] = value;
    for (int i = 0; i < 20; ++i) {
      const double share = one.share();
      EXPECT_GE(share, 0.02);
      EXPECT_LE(share, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

/// A process that died while it made the table has left a short file.
TEST_F(HostSharesTest, ATableThatIsCutOffIsMadeWhole) {
  for (const off_t size : {0, 1, 100, 4096}) {
    const File file(shm_open(name_.c_str(), O_CREAT | O_RDWR, 0600));
    ASSERT_EQ(ftruncate(file.get(), 0), 0);
    ASSERT_EQ(ftruncate(file.get(), size), 0);
    Engine one(name_), two(name_);
    one.begin();
    two.begin();
    EXPECT_TRUE(one.comes_to(0.5, &two)) << size;
  }
}

TEST_F(HostSharesTest, ATableThatOthersCouldCutOffIsNotUsed) {
  const File file(shm_open(name_.c_str(), O_CREAT | O_RDWR, 0600));
  ASSERT_EQ(fchmod(file.get(), 0666), 0);
  EXPECT_FALSE(HostShares::open(name_, rails("10.0.0.1")).ok());
  ASSERT_EQ(fchmod(file.get(), 0600), 0);
  EXPECT_TRUE(HostShares::open(name_, rails("10.0.0.1")).ok());
  if (geteuid() != 0) return;  // only root can give it away
  ASSERT_EQ(fchown(file.get(), 12345, static_cast<gid_t>(-1)), 0);
  EXPECT_FALSE(HostShares::open(name_, rails("10.0.0.1")).ok());
}

TEST_F(HostSharesTest, OneMoreThanThereAreRowsDoesWithout) {
  std::vector<std::unique_ptr<HostShares>> all;
  for (size_t i = 0; i < SharedTable::kRows; ++i)
    all.push_back(HostShares::open(name_, rails("10.0.0.1")).value());
  EXPECT_FALSE(HostShares::open(name_, rails("10.0.0.1")).ok());
  all.pop_back();
  EXPECT_TRUE(HostShares::open(name_, rails("10.0.0.1")).ok());
}

}  // namespace
}  // namespace braid::transfer
