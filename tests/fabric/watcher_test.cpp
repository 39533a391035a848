// include/braid/fabric_watcher.h, with threads that write.
#include "braid/fabric_watcher.h"

#include <poll.h>

#include <atomic>

#include "fabric/library_pair.h"
#include "fabric/watcher_told.h"

namespace braid {
namespace {

using Memory = FabricWatcher::Memory;
using std::chrono::milliseconds;
using test::eventually;
using test::Told;

void store(uint64_t* word, uint64_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

class WatcherTest : public test::FabricPair {};

TEST_F(WatcherTest, AThreadThatCountsIsSeenAtItsLatestValue) {
  Told told;
  auto watcher = FabricWatcher::open(*owner_, Memory::kHost, told.callback()).value();
  EXPECT_EQ(*watcher->word(), 0u);
  constexpr uint64_t kLast = 300'000;
  for (uint64_t i = 1; i <= kLast; ++i) store(watcher->word(), i);
  ASSERT_TRUE(eventually([&] { return told.latest() == kLast; }));
  EXPECT_TRUE(told.is_chained());
  EXPECT_LE(told.count(), kLast);
  store(watcher->word(), kLast);  // the same
  std::this_thread::sleep_for(milliseconds(20));
  const uint64_t count = told.count();
  store(watcher->word(), ~uint64_t{0});
  ASSERT_TRUE(eventually([&] { return told.latest() == ~uint64_t{0}; })) << "all 64 bits";
  EXPECT_EQ(told.count(), count + 1);
}

/// The paper's section 4 in small: a layer is written when the word says that it is ready.
TEST_F(WatcherTest, ACallbackWritesWhatIsReady) {
  constexpr uint64_t kLayers = 60, kLayerBytes = 10'000;
  std::vector<std::byte> source(kLayers * kLayerBytes), memory(source.size());
  const auto target = open_memory(memory);
  const auto from = writer_->add_region(source.data(), source.size()).value();
  const auto immediate = owner_->acquire_immediate().value();
  std::atomic<bool> is_well = true;
  const auto push = [&](uint64_t old_value, uint64_t value) {
    for (uint64_t layer = old_value; layer < value; ++layer) {
      const uint64_t at = layer * kLayerBytes;
      is_well =
          is_well && writer_->write(from, target, {at, at, kLayerBytes}, immediate, kLimit).ok();
    }
  };
  auto watcher = FabricWatcher::open(*writer_, Memory::kHost, push).value();
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    std::fill_n(source.begin() + static_cast<ptrdiff_t>(layer * kLayerBytes), kLayerBytes,
                static_cast<std::byte>(layer + 1));
    store(watcher->word(), layer + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  EXPECT_EQ(owner_->wait_count(immediate, kLayers, kLimit).value(), kLayers);
  EXPECT_TRUE(is_well);
  EXPECT_TRUE(memory == source);
}

TEST_F(WatcherTest, ReleaseWaitsForTheCallbackAndNoneComesAfterIt) {
  for (int turn = 0; turn < 20; ++turn) {
    std::atomic<bool> has_begun = false, is_running = false, is_released = false, is_late = false;
    auto watcher = FabricWatcher::open(*owner_, Memory::kHost, [&](uint64_t, uint64_t) {
                     is_late = is_late || is_released;
                     is_running = has_begun = true;
                     std::this_thread::sleep_for(milliseconds(2));
                     is_running = false;
                   }).value();
    store(watcher->word(), 1);
    ASSERT_TRUE(eventually([&] { return has_begun.load(); }));
    store(watcher->word(), 2);  // the next one is on its way
    std::this_thread::sleep_for(std::chrono::microseconds(turn * 100));
    watcher.reset();
    is_released = true;
    EXPECT_FALSE(is_running);
    std::this_thread::sleep_for(milliseconds(2));
    EXPECT_FALSE(is_late);
  }
}

TEST_F(WatcherTest, ACallbackReleasesItsOwnWatcher) {
  std::unique_ptr<FabricWatcher> watcher;
  std::atomic<int> calls = 0;
  watcher = FabricWatcher::open(*owner_, Memory::kHost, [&](uint64_t, uint64_t) {
              store(watcher->word(), 2);
              std::this_thread::sleep_for(milliseconds(5));  // it is seen
              watcher.reset();
              ++calls;
            }).value();
  store(watcher->word(), 1);
  ASSERT_TRUE(eventually([&] { return calls == 1; }));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(calls, 1);
}

TEST_F(WatcherTest, AnEventOfTheQueueSaysTheLatestValue) {
  Told told;
  auto watcher = FabricWatcher::open(*owner_, Memory::kHost, nullptr).value();
  auto other = FabricWatcher::open(*owner_, Memory::kHost, told.callback()).value();
  store(watcher->word(), 5);
  pollfd asked{owner_->event_descriptor().value(), POLLIN, 0};
  ASSERT_EQ(poll(&asked, 1, 60'000), 1);
  store(watcher->word(), 9);
  for (uint64_t round = 1; round <= 2; ++round) {  // between two looks at one word it sees all
    store(other->word(), round);
    ASSERT_TRUE(eventually([&] { return told.latest() == round; }));
  }
  const auto events = owner_->take_events().value();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, BRAID_FABRIC_EVENT_WORD);
  EXPECT_EQ(events[0].id, watcher->number());
  EXPECT_EQ(events[0].old_value, 0u);
  EXPECT_EQ(events[0].value, 9u);
}

}  // namespace
}  // namespace braid
