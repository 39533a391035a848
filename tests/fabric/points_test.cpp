// The writer is killed, or stopped and continued, at 40 points of the protocol: memory that was
// said to be free stays unchanged, the owner names the peer, and goes on with another one. Where
// processes share locks, also while it holds one.
//
// BRAID_TEST_POINTS_EVERY=N: every N-th point only.
#include <cstdlib>

#include "fabric/two_processes.h"

namespace braid::fabric {
namespace {

using test::kForEver;
using test::kSecondNs;
using test::Peer;

constexpr int kPoints = 40;

class PointsTest : public test::ProcessTest {
 protected:
  void at_each_point(int signal_there, const char* points) {
    const char* every = std::getenv("BRAID_TEST_POINTS_EVERY");
    const int stride = every != nullptr ? std::atoi(every) : 1;
    std::unique_ptr<Peer> other;
    other_ = start(other);
    for (int point = 1; point <= kPoints && !HasFatalFailure(); point += stride)
      at_point(point, signal_there, points);
  }

  /// The owner is told nothing: it sees what the other process does.
  void at_point(int point, int signal_there, const char* points) {
    SCOPED_TRACE("point " + std::to_string(point) + " of " + points + ", signal " +
                 std::to_string(signal_there));
    Peer process(GetParam()->provider, engine_->address(), point, signal_there, points);
    std::vector<std::byte> memory(300'000);
    std::optional<uint64_t> peer;
    std::optional<Job> job;
    ASSERT_TRUE(wait([&] {
      if (!peer) peer = engine_->accept();
      const bool is_here = peer && engine_->peer_state(*peer).value() == PeerState::kConnected;
      if (is_here && !job) job = order(*peer, memory, kForEver);
      return process.has_halted();
    })) << "it never comes to this point";
    go_on_with_the_other();
    if (!peer) peer = engine_->accept();  // it had connected just before
    if (signal_there == SIGSTOP) {
      if (job) {
        EXPECT_TRUE(engine_->revoke(job->grant, now_ns() + kSecondNs / 50).ok());
      }
      wait([&] { return job && fence(*job) != Fence::kRevoking; }, 0.05);
      go_on_with_the_other();
      process.signal(SIGCONT);
      if (job) {
        ASSERT_TRUE(wait([&] { return fence(*job) == Fence::kFenced; }));
      }
    } else if (peer) {
      std::optional<uint64_t> failed;
      ASSERT_TRUE(wait([&] { return (failed = engine_->next_failed()).has_value(); }, 5));
      EXPECT_EQ(failed, peer);
      if (job) {
        EXPECT_TRUE(wait([&] { return fence(*job) == Fence::kFenced; })) << "it drains soon";
      }
    }
    if (!job) return;
    std::fill(memory.begin(), memory.end(), std::byte{0});
    wait([] { return false; }, 0.02);
    EXPECT_EQ(memory, std::vector<std::byte>(memory.size()));
    EXPECT_TRUE(engine_->disconnect(*peer).ok());
    EXPECT_TRUE(engine_->remove_region(job->region).ok());
  }

  void go_on_with_the_other() {
    std::vector<std::byte> memory(10'000);
    const Job job = order(other_, memory, 1);
    ASSERT_TRUE(wait([&] { return count(job) == immediates_of_write(memory.size()); }, 5));
    EXPECT_EQ(memory, std::vector<std::byte>(memory.size(), std::byte{1}));
    ASSERT_TRUE(engine_->revoke(job.grant, now_ns() + 10 * kSecondNs).ok());
    ASSERT_TRUE(wait([&] { return fence(job) == Fence::kFenced; }));
    EXPECT_TRUE(engine_->remove_region(job.region).ok());
  }

  uint64_t other_ = 0;
};

TEST_P(PointsTest, Killed) { at_each_point(SIGKILL, "steps"); }
TEST_P(PointsTest, StoppedAndContinued) { at_each_point(SIGSTOP, "steps"); }

class SharedLocksTest : public PointsTest {};

TEST_P(SharedLocksTest, KilledWhileItHoldsOne) { at_each_point(SIGKILL, "locks"); }
/// Not that of the endpoint for messages: these wait until it goes on (docs/fabric.md).
TEST_P(SharedLocksTest, StoppedAndContinuedWhileItHoldsOne) {
  at_each_point(SIGSTOP, "door_locks");
}

std::vector<const ofi::Quirks*> providers_that_share_locks() {
  std::vector<const ofi::Quirks*> found(ofi::all_quirks().begin(), ofi::all_quirks().end());
  std::erase_if(found, [](const ofi::Quirks* quirks) { return !quirks->shares_locks; });
  return found;
}
std::string name_of(const testing::TestParamInfo<const ofi::Quirks*>& quirks) {
  return std::string(quirks.param->provider).substr(0, 3);
}

INSTANTIATE_TEST_SUITE_P(Providers, PointsTest,
                         testing::ValuesIn(ofi::all_quirks().begin(), ofi::all_quirks().end()),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Providers, SharedLocksTest,
                         testing::ValuesIn(providers_that_share_locks()), name_of);

}  // namespace
}  // namespace braid::fabric
