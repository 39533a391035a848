// Batches that have ended, and the descriptor that tells of them.
#include "transfer/library/ended_batches.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

namespace braid::transfer {
namespace {

using Source = EventDescriptor::Source;
using Numbers = std::vector<uint64_t>;

bool is_readable(const EventDescriptor& events) {
  pollfd asked{events.get(), POLLIN, 0};
  return poll(&asked, 1, 0) == 1;
}

TEST(EventDescriptor, IsReadableWhileOneOfItsSourcesIs) {
  EventDescriptor events;
  EXPECT_FALSE(is_readable(events));
  events.set(Source::kBatches, false);
  EXPECT_FALSE(is_readable(events));
  events.set(Source::kBatches, true);
  events.set(Source::kNotifications, true);
  EXPECT_TRUE(is_readable(events));
  events.set(Source::kBatches, false);
  EXPECT_TRUE(is_readable(events)) << "a notification is there";
  events.set(Source::kNotifications, false);
  EXPECT_FALSE(is_readable(events));
}

TEST(EventDescriptor, TellsAgainIfAProgramHasReadIt) {
  EventDescriptor events;
  events.set(Source::kBatches, true);
  uint64_t count = 0;
  ASSERT_EQ(read(events.get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
  events.set(Source::kBatches, true);
  EXPECT_TRUE(is_readable(events));
}

class EndedBatchesTest : public ::testing::Test {
 protected:
  EventDescriptor events_;
  EndedBatches ended_{events_};
};

TEST_F(EndedBatchesTest, KeepsOutcomesUntilTheyAreForgotten) {
  ended_.add(7, {{true, Cause::kNone, 5}, {true, Cause::kCancelled, 3}});
  EXPECT_TRUE(ended_.contains(7));
  EXPECT_TRUE(ended_.read(7, [](const EndedBatches::Outcomes& outcomes) {
    ASSERT_EQ(outcomes.size(), 2u);
    EXPECT_EQ(outcomes[1].cause, Cause::kCancelled);
    EXPECT_EQ(outcomes[1].delivered_bytes, 3u);
  }));
  EXPECT_TRUE(ended_.forget(7));
  EXPECT_FALSE(ended_.contains(7));
  EXPECT_FALSE(ended_.read(7, [](const EndedBatches::Outcomes&) { FAIL(); }));
  EXPECT_FALSE(ended_.forget(7));
}

TEST_F(EndedBatchesTest, TellsOfBatchesOnlyToThoseThatAsk) {
  ended_.add(1, {});
  EXPECT_FALSE(is_readable(events_));
  EXPECT_EQ(ended_.take(8), Numbers());
  ended_.begin_to_tell();
  EXPECT_FALSE(is_readable(events_)) << "it had ended before";
  ended_.add(2, {});
  EXPECT_TRUE(is_readable(events_));
}

TEST_F(EndedBatchesTest, TakesEachOnceInTheirOrder) {
  ended_.begin_to_tell();
  for (const uint64_t batch : {3, 1, 2}) ended_.add(batch, {});
  EXPECT_EQ(ended_.take(2), (Numbers{3, 1}));
  EXPECT_TRUE(is_readable(events_)) << "one is left";
  EXPECT_EQ(ended_.take(2), Numbers{2});
  EXPECT_FALSE(is_readable(events_));
  EXPECT_TRUE(ended_.contains(1)) << "taken is not forgotten";
}

TEST_F(EndedBatchesTest, DoesNotTellOfWhatIsForgotten) {
  ended_.begin_to_tell();
  ended_.add(1, {});
  ended_.add(2, {});
  EXPECT_TRUE(ended_.forget(1));
  EXPECT_TRUE(is_readable(events_));
  EXPECT_TRUE(ended_.forget(2));
  EXPECT_FALSE(is_readable(events_));
  EXPECT_EQ(ended_.take(8), Numbers());
}

}  // namespace
}  // namespace braid::transfer
