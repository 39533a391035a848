// What wakes the thread of an engine that sleeps, after a caller has driven the engine.
#include <atomic>

#include "fabric/library_pair.h"
#include "support/wake_ups.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using test::eventually;

class SleepTest : public test::FabricPair, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override { open(GetParam()); }

  /// How long a notification takes to be told to a sleeping owner, for which a caller has just
  /// waited in vain.
  Clock::duration told_after(Fabric::Immediate immediate) {
    std::atomic<bool> is_told = false;
    const auto tell = [&](uint64_t) { is_told = true; };
    EXPECT_TRUE(owner_->on_count(immediate, ++count_, tell).ok());
    std::this_thread::sleep_for(milliseconds(3));  // its thread sleeps now
    EXPECT_LT(owner_->wait_count(immediate, count_, microseconds(300)).value(), count_);
    const auto begin = Clock::now();
    const auto ticket = writer_->notify(owners_peer_, immediate, kLimit).value();
    EXPECT_TRUE(eventually([&] { return is_told.load(); }));
    const auto took = Clock::now() - begin;
    writer_->forget(ticket);
    return took;
  }

  uint64_t count_ = 0;
};

/// Otherwise the thread would notice it only when it looks by itself, tens of milliseconds later. A
/// busy machine may be as slow now and then, so this looks for a time in which it is not.
TEST_P(SleepTest, AThreadThatSleepsIsWokenAlsoAfterACallerHasDriven) {
  const auto immediate = owner_->acquire_immediate().value();
  const auto are_most_quick = [&] {
    int quick = 0;
    for (int turn = 0; turn < 10; ++turn) quick += told_after(immediate) < milliseconds(8) ? 1 : 0;
    return quick >= 8;
  };
  bool is_quick = false;
  for (int look = 0; look < 20 && !is_quick; ++look) is_quick = are_most_quick();
  EXPECT_TRUE(is_quick);
}

std::string name_of(const testing::TestParamInfo<const char*>& provider) {
  return std::string(provider.param).substr(0, 3);
}

INSTANTIATE_TEST_SUITE_P(Providers, SleepTest, testing::Values("tcp;ofi_rxm", "shm", "local"),
                         name_of);

/// Over local, older engines do not ring.
class IdleTest : public SleepTest {};

/// It looks five times a second whatever happens, and beats once. The rest is for a busy machine.
TEST_P(IdleTest, AnEngineToWhichNothingHappensWakesRarely) {
  constexpr uint64_t kWakeUpsMax = 18;
  EXPECT_TRUE(eventually([] { return test::most_wake_ups_in_a_second() <= kWakeUpsMax; }));
}

/// A request after a silence is seen at once, not at the thread's next look, which comes up to 200
/// ms later. A busy machine may be slow too, so this looks for a time in which it is not.
TEST_P(IdleTest, TheFirstRequestAfterASilenceIsAsSoonAsOthers) {
  std::vector<std::byte> memory(64);
  const auto target = open_memory(memory);
  const auto source = writer_->allocate_memory(64).value();
  const auto are_most_quick = [&] {
    int quick = 0;
    for (int turn = 0; turn < 10; ++turn) {
      std::this_thread::sleep_for(milliseconds(300));
      const auto begin = Clock::now();
      const auto ticket = writer_->write(source.region, target, {0, 0, 64}, {}, kLimit).value();
      EXPECT_EQ(writer_->wait(ticket, kLimit).value(), Fabric::TicketState::kDone);
      quick += Clock::now() - begin < milliseconds(20) ? 1 : 0;
      writer_->forget(ticket);
    }
    return quick >= 7;
  };
  EXPECT_TRUE(eventually(are_most_quick));
}

INSTANTIATE_TEST_SUITE_P(Providers, IdleTest, testing::Values("tcp;ofi_rxm", "shm"), name_of);

}  // namespace
}  // namespace braid
