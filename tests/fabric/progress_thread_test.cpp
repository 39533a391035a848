// A wire that a thread drives (fabric/progress_thread.h), and does not take what is posted.
#include "fabric/progress_thread.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "fabric/fake_endpoint.h"
#include "fabric/sleep.h"
#include "support/eventually.h"
#include "support/no_more_files.h"

namespace braid::fabric {
namespace {

class ProgressThreadTest : public testing::Test {
 protected:
  void post(uint64_t context) {
    Write write;
    write.peer = 101;
    write.context = context;
    ASSERT_TRUE(domain_->post_write(write));
  }

  FakeEndpoint* const fake_ = new FakeEndpoint(1);  // owner: domain_
  const std::unique_ptr<Domain> domain_ = with_progress_thread(std::unique_ptr<Domain>(fake_));
  std::array<Completion, 4> completions_;
};

/// A peer that is stopped while the first write makes its connection.
TEST_F(ProgressThreadTest, AWriteWaitsForAConnectionThatIsBeingMade) {
  fake_->is_full = true;
  post(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(domain_->poll(completions_), 0u) << "it failed, and nothing was wrong";
  fake_->is_full = false;
  EXPECT_TRUE(braid::test::eventually([&] { return fake_->taken == 1; }));
}

TEST_F(ProgressThreadTest, AWriteThatAConnectionRefusesFailsLongBeforeThePeerIsGivenUp) {
  post(1);
  ASSERT_TRUE(braid::test::eventually([&] { return fake_->taken == 1; }));
  fake_->is_full = true;
  const auto begun = std::chrono::steady_clock::now();
  post(2);
  ASSERT_TRUE(braid::test::eventually([&] { return domain_->poll(completions_) == 1; }));
  EXPECT_EQ(completions_[0].context, 2u);
  EXPECT_FALSE(completions_[0].ok);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
}

/// Nobody can wake it, and it may not loop either.
TEST(SleepTest, WithoutADescriptorItTakesNaps) {
  std::optional<Sleep> sleep;
  {
    const braid::test::NoMoreFiles none;
    sleep.emplace();
  }
  std::mutex mutex;
  std::unique_lock lock(mutex);
  constexpr uint64_t kNs = 1'000'000'000;
  int naps = 0;
  for (const uint64_t end_ns = monotonic_ns() + kNs; monotonic_ns() < end_ns; ++naps)
    sleep->until(end_ns, monotonic_ns(), {}, lock);
  EXPECT_GT(naps, 10) << "what it is told meanwhile waits as long";
  EXPECT_LE(naps, 3000) << "naps of 0.4 ms are 2,500";
}

}  // namespace
}  // namespace braid::fabric
