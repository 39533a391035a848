// The writer, or the owner, is killed, or stopped and continued, at 40 points of the protocol:
// memory that was said to be free stays unchanged, the survivor names the peer, has back all that
// it kept for it, and goes on with another one. Where processes share locks, the writer also while
// it holds one.
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
  virtual void at_point(int point, int signal_there, const char* points) {
    SCOPED_TRACE("point " + std::to_string(point) + " of " + points + ", signal " +
                 std::to_string(signal_there));
    Peer process(GetParam(), engine_->address(), point, signal_there, points);
    test::ProcessMemory memory(GetParam(), 0, 300'000);
    std::optional<uint64_t> peer;
    std::optional<Job> job;
    ASSERT_TRUE(wait([&] {
      if (!peer) peer = engine_->accept();
      const bool is_here = peer && engine_->peer_state(*peer).value() == PeerState::kConnected;
      if (is_here && !job) job = order(*peer, memory.bytes(), kForEver);
      return process.has_halted();
    })) << "it never comes to this point";
    look_after(process, peer, job, memory, signal_there);
  }

  /// The process has halted.
  void look_after(Peer& process, std::optional<uint64_t> peer, const std::optional<Job>& job,
                  test::ProcessMemory& memory, int signal_there) {
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
      ASSERT_TRUE(wait([&] { return (failed = engine_->next_failed()).has_value(); }));
      EXPECT_EQ(failed, peer);
      EXPECT_NE(engine_->peer_failure(*peer).value(), PeerFailure::kSilent) << "it is seen sooner";
      if (job) {
        EXPECT_TRUE(wait([&] { return fence(*job) == Fence::kFenced; })) << "it drains soon";
      }
    }
    if (job) {
      memory.fill(std::byte{0});
      wait([] { return false; }, 0.02);
      EXPECT_TRUE(memory.is_all(std::byte{0}));
    }
    if (peer) {
      EXPECT_TRUE(engine_->disconnect(*peer).ok());
    }
    if (job) {
      EXPECT_TRUE(engine_->remove_region(job->region).ok());
    }
    expect_alone(signal_there);
  }

  /// Nothing is kept for a process that was killed.
  void expect_alone(int signal_there) {
    if (signal_there != SIGKILL) return;
    while (const auto failed = engine_->next_failed()) (void)engine_->disconnect(*failed);
    EXPECT_TRUE(wait([&] { return engine_->peers().size() == 1; })) << "only the other is left";
  }

  void go_on_with_the_other() {
    constexpr size_t kBytes = 10'000;
    test::ProcessMemory memory(GetParam(), 0, kBytes);
    const Job job = order(other_, memory.bytes(), 1);
    ASSERT_TRUE(wait([&] { return count(job) == immediates_of_write(kBytes); }));
    EXPECT_TRUE(memory.is_all(std::byte{1}));
    ASSERT_TRUE(engine_->revoke(job.grant, now_ns() + 10 * kSecondNs).ok());
    ASSERT_TRUE(wait([&] { return fence(job) == Fence::kFenced; }));
    EXPECT_TRUE(engine_->remove_region(job.region).ok());
  }

  uint64_t other_ = 0;
};

/// The owner revokes once something has come, and then tells the writer to disconnect.
class EndPointsTest : public PointsTest {
 protected:
  void at_point(int point, int signal_there, const char* points) override {
    if (has_passed_all_) return;
    SCOPED_TRACE("point " + std::to_string(point) + " of " + points + ", signal " +
                 std::to_string(signal_there));
    Peer process(GetParam(), engine_->address(), point, signal_there, points);
    test::ProcessMemory memory(GetParam(), 0, 300'000);
    std::optional<uint64_t> peer;
    ASSERT_TRUE(wait([&] {
      if (!peer) peer = engine_->accept();
      return peer && engine_->peer_state(*peer).value() == PeerState::kConnected;
    }));
    const Job job = order(*peer, memory.bytes(), kForEver);
    ASSERT_TRUE(wait([&] { return count(job) > 0; }));
    ASSERT_TRUE(engine_->revoke(job.grant, now_ns() + kSecondNs).ok());
    bool is_told = false;
    const bool has_halted = wait(
        [&] {
          if (!is_told && fence(job) == Fence::kFenced)
            is_told = engine_->send(*peer, test::message_of({0, 0, 0}, {})).ok();
          return process.has_halted();
        },
        3);
    has_passed_all_ = !has_halted;
    if (has_passed_all_) {
      EXPECT_GT(point, kPointsMin) << "too few points are reached";
      process.end(SIGKILL);
      signal_there = SIGKILL;
    }
    look_after(process, peer, job, memory, signal_there);
  }

 private:
  static constexpr int kPointsMin = 2;
  bool has_passed_all_ = false;
};

TEST_P(EndPointsTest, Killed) { at_each_point(SIGKILL, "ends"); }
TEST_P(EndPointsTest, StoppedAndContinued) { at_each_point(SIGSTOP, "ends"); }

/// This process writes, again and again, what the other one owns.
class OwnerPointsTest : public PointsTest {
 protected:
  void at_point(int point, int signal_there, const char* points) override {
    SCOPED_TRACE("point " + std::to_string(point) + " of " + points + ", signal " +
                 std::to_string(signal_there));
    Peer process(GetParam(), engine_->address(), point, signal_there, points);
    source_.emplace(GetParam(), 0, kBytes);
    source_->fill(std::byte{1});
    region_ = engine_->add_region(source_->bytes()).value();
    peer_.reset(), target_.reset(), ticket_.reset();
    has_asked_ = false;
    ASSERT_TRUE(wait([&] {
      go_on_writing();
      return process.has_halted();
    })) << "it never comes to this point";
    go_on_with_the_other();
    if (!peer_) peer_ = engine_->accept();  // it had connected just before
    if (signal_there == SIGSTOP) {
      process.signal(SIGCONT);
      ASSERT_TRUE(wait([&] { return !is_under_way(); }));
      if (ticket_) {
        EXPECT_EQ(engine_->state(*ticket_).value(), TicketState::kDone);
      }
      process.end(SIGKILL);
    }
    if (peer_) {
      std::optional<uint64_t> failed;
      ASSERT_TRUE(wait([&] { return (failed = engine_->next_failed()).has_value(); }));
      EXPECT_EQ(failed, peer_);
      EXPECT_NE(engine_->peer_failure(*peer_).value(), PeerFailure::kSilent) << "it is seen sooner";
      EXPECT_TRUE(wait([&] { return !is_under_way(); })) << "nobody reads the source any more";
      EXPECT_TRUE(engine_->disconnect(*peer_).ok());
    }
    EXPECT_TRUE(engine_->remove_region(region_).ok());
    expect_alone(SIGKILL);
  }

 private:
  void go_on_writing() {
    if (!peer_) peer_ = engine_->accept();
    if (!peer_ || engine_->peer_state(*peer_).value() != PeerState::kConnected) return;
    if (!has_asked_) has_asked_ = engine_->send(*peer_, test::message_of({0, 0, kBytes}, {})).ok();
    if (const auto answer = engine_->receive()) {
      std::memcpy(&told_, answer->payload.data(), sizeof told_);
      const auto granted = decode_descriptor(Bytes(answer->payload).subspan(sizeof told_));
      target_ = engine_->open_target(granted.value()).value();
    }
    if (!target_ || is_under_way()) return;
    if (ticket_) engine_->forget(*ticket_);
    const Result<uint64_t> next = engine_->write(region_, *target_, {0, 0, kBytes}, told_.immediate,
                                                 now_ns() + 300 * kSecondNs);
    if (next.ok())
      ticket_ = next.value();
    else
      target_.reset();
  }
  bool is_under_way() {
    if (!ticket_) return false;
    const TicketState state = engine_->state(*ticket_).value();
    return state == TicketState::kPending || state == TicketState::kQuarantined;
  }

  static constexpr size_t kBytes = 300'000;
  std::optional<test::ProcessMemory> source_;
  uint64_t region_ = 0;
  std::optional<uint64_t> peer_, target_, ticket_;
  bool has_asked_ = false;
  test::Order told_;
};

TEST_P(OwnerPointsTest, Killed) { at_each_point(SIGKILL, "steps"); }
TEST_P(OwnerPointsTest, StoppedAndContinued) { at_each_point(SIGSTOP, "steps"); }

TEST_P(PointsTest, Killed) { at_each_point(SIGKILL, "steps"); }
TEST_P(PointsTest, StoppedAndContinued) { at_each_point(SIGSTOP, "steps"); }

class SharedLocksTest : public PointsTest {};

TEST_P(SharedLocksTest, KilledWhileItHoldsOne) { at_each_point(SIGKILL, "locks"); }
/// Not that of the endpoint for messages: these wait until it goes on (docs/fabric.md).
TEST_P(SharedLocksTest, StoppedAndContinuedWhileItHoldsOne) {
  at_each_point(SIGSTOP, "door_locks");
}

/// The lock lies in memory that goes with the owner's endpoint.
TEST_P(SharedLocksTest, TheOwnerClosesWhileItIsHeld) {
  constexpr int kFirstPoints = 12;
  for (int point = 1; point <= kFirstPoints; ++point) {
    SCOPED_TRACE("point " + std::to_string(point));
    std::unique_ptr<Peer> other;
    start(other);  // for which it opens a door
    Peer process(GetParam(), engine_->address(), point, SIGSTOP, "locks");
    ASSERT_TRUE(wait([&] { return process.has_halted(); }));
    wait([] { return false; }, 0.02);  // the engine meets the lock
    open_engine();                     // closes it
  }
}

std::vector<std::string> providers_that_share_locks() {
  std::vector<std::string> found;
  for (const ofi::Quirks* quirks : ofi::all_quirks())
    if (quirks->shares_locks) found.emplace_back(quirks->provider);
  return found;
}
/// Memory of GPUs of the emulated server too; with `local`, whose GPUs are of one process there,
/// memory of the host, which peers map or not.
std::vector<std::string> all_providers() {
  std::vector<std::string> all = test::libfabrics_providers();
  all.insert(all.end(),
             {"tcp;ofi_rxm+gpu", "shm+gpu", "shm+endpoints+gpu", "local", "local+mapped"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Providers, PointsTest, testing::ValuesIn(all_providers()),
                         test::name_of_provider);
INSTANTIATE_TEST_SUITE_P(Providers, EndPointsTest, testing::ValuesIn(all_providers()),
                         test::name_of_provider);
INSTANTIATE_TEST_SUITE_P(Providers, OwnerPointsTest, testing::ValuesIn(all_providers()),
                         test::name_of_provider);
INSTANTIATE_TEST_SUITE_P(Providers, SharedLocksTest,
                         testing::ValuesIn(providers_that_share_locks()), test::name_of_provider);

}  // namespace
}  // namespace braid::fabric
