// What is under way over `local` to an engine that does nothing any more ends, whether its process
// has ended or is stopped, and however it was to be written.
#include <gtest/gtest.h>

#include <functional>

#include "fabric/local/domain.h"
#include "fabric/shared_bytes.h"
#include "fabric/small_net.h"
#include "fabric/staged_fixture.h"

namespace braid::fabric {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

class LocalAbandonTest : public testing::Test {
 protected:
  static constexpr uint32_t kOwner = 1, kWriter = 2;  // their processes, too
  /// The queue between the two does not hold all of it.
  static constexpr size_t kBytes = 3 << 20;

  void SetUp() override {
    const uint64_t there = writer_->connect(owner_->address(), limit_ns()).value();
    ASSERT_TRUE(
        wait([&] { return writer_->peer_state(there).value() == PeerState::kConnected; }, true));
    peer_ = there;
    std::optional<uint64_t> newcomer;
    ASSERT_TRUE(wait([&] { return (newcomer = owner_->accept()).has_value(); }, true));
    from_ = writer_->add_region(source_).value();
    const auto target = [&](MutableBytes memory) {
      const uint64_t region = owner_->add_region(memory).value();
      return writer_
          ->open_target(owner_->grant(region, *newcomer, 0, memory.size()).value().descriptor)
          .value();
    };
    const uint64_t plain = target(plain_), mapped = target(mapped_.bytes()),
                   unmapped = target(unmapped_.bytes());
    const uint64_t first = write(mapped, 1);
    ASSERT_TRUE(wait([&] { return has_ended(first); }, true)) << "it is mapped now";
    for (const uint64_t each : {plain, mapped, unmapped}) tickets_.push_back(write(each, kBytes));
    writer_->step(now_ns());
    const std::vector<std::byte> message(100);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(writer_->send(peer_, message).ok());
    writer_->step(now_ns());
  }

  std::unique_ptr<Engine> open(uint32_t number) {
    std::vector<std::unique_ptr<Domain>> rails;
    rails.push_back(local::open_domain().value());
    EngineOptions options;
    options.engine = number;
    options.processes = std::make_shared<test::TestProcesses>(number, ended_processes_);
    return Engine::open(std::move(rails), options).value();
  }
  uint64_t now_ns() const {
    return leapt_ns_ +
           static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  uint64_t limit_ns() const { return now_ns() + 300 * kSecondNs; }
  bool wait(const std::function<bool()>& until, bool owner_works = false) {
    for (test::Patience patience(20'000); !patience.is_over();) {
      if (until()) return true;
      writer_->step(now_ns());
      if (owner_works) owner_->step(now_ns());
    }
    return false;
  }
  uint64_t write(uint64_t target, size_t size_bytes) {
    return writer_->write(from_, target, {0, 0, size_bytes}, {}, limit_ns()).value();
  }
  bool has_ended(uint64_t ticket) const {
    const TicketState state = writer_->state(ticket).value();
    return state == TicketState::kDone || state == TicketState::kFailed;
  }
  void expect_that_all_ends() {
    for (const uint64_t ticket : tickets_) EXPECT_TRUE(wait([&] { return has_ended(ticket); }));
    EXPECT_EQ(writer_->state(tickets_[0]).value(), TicketState::kFailed) << "nothing was left";
    EXPECT_TRUE(writer_->remove_region(from_).ok()) << "its source is still read";
  }

  std::vector<uint32_t> ended_processes_;
  uint64_t leapt_ns_ = 0;
  std::vector<std::byte> source_ = test::some_bytes(kBytes, 1), plain_{kBytes};
  test::SharedHostBytes mapped_{kBytes}, unmapped_{kBytes};
  std::unique_ptr<Engine> owner_ = open(kOwner), writer_ = open(kWriter);
  uint64_t peer_ = 0, from_ = 0;
  std::vector<uint64_t> tickets_;
};

/// A child of the process, which keeps the socket open, may live.
TEST_F(LocalAbandonTest, AProcessThatHasEndedTakesNothingMore) {
  ended_processes_.push_back(kOwner);
  expect_that_all_ends();
  ASSERT_TRUE(writer_->disconnect(peer_).ok());
  EXPECT_TRUE(wait([&] { return writer_->peers().empty(); }));
}

TEST_F(LocalAbandonTest, AStoppedPeerThatWasDisconnectedTakesNothingMore) {
  ASSERT_TRUE(writer_->disconnect(peer_).ok());
  leapt_ns_ += 6 * kSecondNs;
  expect_that_all_ends();
  EXPECT_TRUE(wait([&] { return writer_->peers().empty(); }));
  for (int i = 0; i < 100; ++i) {
    owner_->step(now_ns());  // it goes on
    writer_->step(now_ns());
  }
  EXPECT_TRUE(wait([&] { return writer_->connect(owner_->address(), limit_ns()).ok(); }, true));
}

class LocalBounceTest : public StagedTest {
 protected:
  LocalBounceTest() {
    wire_name_ = "local_gpu_to_host";
    held_gpu_ = 0;
  }
};

/// Bytes of a GPU pass through the host on their way into the queue.
TEST_F(LocalBounceTest, AWriteWhoseSourceIsReadEndsAfterTheCopy) {
  const auto source = wire_->memory(0, 1 << 20);
  std::vector<std::byte> target(1 << 20);
  const uint32_t from = writer_->add_region(source->bytes(), Access::kLocal).value();
  const RemoteRange range =
      owner_->remote_range(owner_->add_region(target, Access::kRemoteWrite).value());
  post(from, source->bytes().first(1), range, 0, 1);
  ASSERT_TRUE(wait([&] { return ended_.count(1) == 1; }));
  hold();
  for (const uint64_t write : {2, 3}) post(from, source->bytes(), range, 0, write);
  look_on();
  writer_->abandon(peer_, Absence::kSilent);
  look_on();
  EXPECT_EQ(ended_.count(3), 1u) << "nobody reads its source";
  EXPECT_EQ(ended_.count(2), 0u) << "a copy reads its source";
  release();
  ASSERT_TRUE(wait([&] { return ended_.count(2) == 1; }));
  EXPECT_FALSE(ended_[2]);
  EXPECT_FALSE(ended_[3]);
  EXPECT_EQ(immediates_.count(2) + immediates_.count(3), 0u);
}

}  // namespace
}  // namespace braid::fabric
