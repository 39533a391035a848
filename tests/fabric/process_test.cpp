// Two processes on each provider of libfabric that is here: one owns memory, the other writes, is
// killed, or stopped and continued, or leaves in the middle.
#include <fcntl.h>
#include <sys/stat.h>

#include "fabric/shm_files.h"
#include "fabric/two_processes.h"

namespace braid::fabric {
namespace {

using test::kForEver;
using test::kSecondNs;
using test::Peer;

class ProcessTest : public test::ProcessTest {};
class FilesTest : public test::ProcessTest {};

void make_old(const std::string& file) {
  const timespec times[] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0) << file;
}

TEST_P(ProcessTest, BytesMoveFromOneProcessToAnother) {
  std::unique_ptr<Peer> process;
  const uint64_t peer = start(process);
  std::vector<std::byte> memory(3'000'001);
  const Job job = order(peer, memory, 20);
  ASSERT_TRUE(wait([&] { return count(job) == 20 * immediates_of_write(memory.size()); }));
  EXPECT_EQ(memory, std::vector<std::byte>(memory.size(), std::byte{20}));
  ASSERT_TRUE(engine_->revoke(job.grant, now_ns() + 10 * kSecondNs).ok());
  ASSERT_TRUE(wait([&] { return fence(job) == Fence::kFenced; }));
  ASSERT_TRUE(engine_->send(peer, {}).ok());
  ASSERT_TRUE(wait([&] { return process->has_halted(); }));
  const int status = process->status();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

/// The writer is stopped in the middle of a write. Its memory is not free until it has answered;
/// afterwards nothing of it lands.
TEST_P(ProcessTest, AWriterThatStopsAndGoesOnWritesNothingIntoMemoryThatIsFree) {
  std::unique_ptr<Peer> process;
  const uint64_t peer = start(process);
  std::vector<std::byte> memory(16 << 20);
  const Job job = order(peer, memory, kForEver);
  for (int turn = 1; turn <= 3; ++turn) {
    const uint64_t seen = count(job);
    ASSERT_TRUE(wait([&] { return count(job) >= seen + 5; })) << turn;
    process->stop();
    wait([] { return false; }, 0.02);
    process->signal(SIGCONT);
  }
  process->stop();
  ASSERT_TRUE(engine_->revoke(job.grant, now_ns() + kSecondNs / 20).ok());
  ASSERT_TRUE(wait([&] { return fence(job) != Fence::kRevoking; }));
  EXPECT_EQ(fence(job), Fence::kQuarantined);
  EXPECT_FALSE(engine_->remove_region(job.region).ok());
  process->signal(SIGCONT);
  ASSERT_TRUE(wait([&] { return fence(job) == Fence::kFenced; }));
  std::fill(memory.begin(), memory.end(), std::byte{0});
  wait([] { return false; }, 0.1);
  EXPECT_EQ(memory, std::vector<std::byte>(memory.size()));
}

/// The writer is killed in the middle of a write. Bytes that it has sent lie in this process's
/// sockets: the owner is told who has ended, nothing of it lands any more, and others go on.
TEST_P(ProcessTest, TheOwnerOutlivesAWriterThatIsKilled) {
  for (int turn = 0; turn < 3; ++turn) {
    std::unique_ptr<Peer> process, next;
    const uint64_t peer = start(process);
    std::vector<std::byte> memory(4 << 20), other_memory(1 << 20);
    const Job job = order(peer, memory, kForEver);
    ASSERT_TRUE(wait([&] { return count(job) >= 3; }));
    process->end(SIGKILL);
    std::optional<uint64_t> failed;
    ASSERT_TRUE(wait([&] { return (failed = engine_->next_failed()).has_value(); }));
    EXPECT_EQ(failed, peer);
    EXPECT_NE(engine_->peer_failure(peer).value(), PeerFailure::kSilent) << "it is seen sooner";
    EXPECT_TRUE(wait([&] { return fence(job) == Fence::kFenced; })) << "it drains soon";
    std::fill(memory.begin(), memory.end(), std::byte{0});
    wait([] { return false; }, 0.1);
    EXPECT_EQ(memory, std::vector<std::byte>(memory.size()));
    ASSERT_TRUE(engine_->disconnect(peer).ok());
    ASSERT_TRUE(engine_->remove_region(job.region).ok());

    const uint64_t next_peer = start(next);
    const Job next_job = order(next_peer, other_memory, 2);
    ASSERT_TRUE(wait([&] { return count(next_job) == 2 * immediates_of_write(1 << 20); })) << turn;
    EXPECT_EQ(other_memory, std::vector<std::byte>(other_memory.size(), std::byte{2}));
    engine_.reset();  // the memory goes
    SetUp();
  }
}

/// One of them disconnects in the middle of writes, and both live on: the writes end, and nothing
/// is kept.
class LeaveTest : public test::ProcessTest {
 protected:
  /// Three times; a turn in which all writes had landed before does not count. `leave` says who.
  void in_the_middle_of_writes(const std::function<void()>& leave) {
    constexpr int kMostTurns = 30;
    for (int turn = 0, caught = 0; caught < 3 && !HasFailure(); ++turn) {
      ASSERT_LT(turn, kMostTurns) << "only " << caught << " turns were left in the middle";
      bool was_in_the_middle = false;
      leave_once(leave, was_in_the_middle);
      caught += was_in_the_middle ? 1 : 0;
    }
  }

  uint64_t peer_ = 0;

 private:
  void leave_once(const std::function<void()>& leave, bool& was_in_the_middle) {
    std::unique_ptr<Peer> process;
    peer_ = start(process);
    std::vector<std::byte> source(300'000, std::byte{1});
    const uint64_t region = engine_->add_region(source).value();
    ASSERT_TRUE(engine_->send(peer_, test::message_of({0, 0, source.size()}, {})).ok());
    std::optional<Received> answer;
    ASSERT_TRUE(wait([&] { return (answer = engine_->receive()).has_value(); }));
    const Bytes descriptor = Bytes(answer->payload).subspan(sizeof(test::Order));
    const uint64_t target = engine_->open_target(decode_descriptor(descriptor).value()).value();
    std::vector<uint64_t> tickets;
    const auto begin_one = [&] {
      const auto begun =
          engine_->write(region, target, {0, 0, source.size()}, {}, now_ns() + 300 * kSecondNs);
      if (begun.ok()) tickets.push_back(begun.value());
      return begun.ok();
    };
    const auto has_ended = [&](uint64_t ticket) {
      const TicketState state = engine_->state(ticket).value();
      return state == TicketState::kDone || state == TicketState::kFailed;
    };
    while (tickets.size() < 20 && begin_one()) {
    }
    ASSERT_TRUE(wait([&] { return has_ended(tickets.front()); }));
    for (int i = 0; i < 20; ++i) begin_one();
    leave();
    ASSERT_TRUE(wait([&] { return !begin_one(); })) << "it does not leave";
    EXPECT_TRUE(wait([&] { return std::all_of(tickets.begin(), tickets.end(), has_ended); }));
    was_in_the_middle = engine_->failure(tickets.back()) != Failure::kNone;
    (void)engine_->disconnect(peer_);
    EXPECT_TRUE(engine_->remove_region(region).ok());
    EXPECT_TRUE(wait([&] { return engine_->peers().empty(); }));
    EXPECT_FALSE(process->has_halted());
  }
};

TEST_P(LeaveTest, TheOwner) {
  in_the_middle_of_writes([&] {
    ASSERT_TRUE(engine_->send(peer_, test::message_of({0, 0, 0}, {})).ok());
  });
}

TEST_P(LeaveTest, TheWriter) {
  in_the_middle_of_writes([&] { ASSERT_TRUE(engine_->disconnect(peer_).ok()); });
}

/// What a killed process has left in /dev/shm goes when the next one opens a rail there, and what a
/// live one uses stays.
TEST_P(FilesTest, WhatAKilledProcessHasLeftIsRemoved) {
  std::unique_ptr<Peer> killed, live;
  start(killed);
  start(live);
  killed->signal(SIGKILL);
  const auto files = [](const Peer& peer) { return test::files_of(peer.process()); };
  const size_t used = files(*live).size();
  ASSERT_GT(used, 0u);
  ASSERT_TRUE(wait([&] { return killed->has_halted(); }));
  ASSERT_GT(files(*killed).size(), 0u);
  for (const Peer* peer : {killed.get(), live.get()})
    for (const std::string& file : files(*peer)) make_old(file);
  ASSERT_TRUE(test::open_process_rail(GetParam()).ok());
  EXPECT_EQ(files(*killed), std::vector<std::string>());
  EXPECT_EQ(files(*live).size(), used);
}

INSTANTIATE_TEST_SUITE_P(Providers, ProcessTest, testing::ValuesIn(test::libfabrics_providers()),
                         test::name_of_provider);
INSTANTIATE_TEST_SUITE_P(Providers, LeaveTest, testing::ValuesIn(test::libfabrics_providers()),
                         test::name_of_provider);

INSTANTIATE_TEST_SUITE_P(Shm, FilesTest, testing::Values("shm"));

}  // namespace
}  // namespace braid::fabric
