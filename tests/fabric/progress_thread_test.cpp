// A wire that a thread drives (fabric/progress_thread.h), and does not take what is posted.
#include "fabric/progress_thread.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <thread>

#include "fabric/fake_endpoint.h"
#include "support/eventually.h"

namespace braid::fabric {
namespace {

/// A peer that is stopped while the first write makes its connection.
TEST(ProgressThreadTest, AWriteWaitsForAConnectionThatIsBeingMade) {
  auto endpoint = std::make_unique<FakeEndpoint>(1);
  FakeEndpoint& fake = *endpoint;
  fake.is_full = true;
  const auto domain = with_progress_thread(std::move(endpoint));
  Write write;
  write.peer = domain->connect({}).value();
  ASSERT_TRUE(domain->post_write(write));
  std::array<Completion, 4> completions;
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(domain->poll(completions), 0u) << "it failed, and nothing was wrong";
  fake.is_full = false;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  fake.is_full = true;
  ASSERT_TRUE(domain->post_write(write));
  ASSERT_TRUE(braid::test::eventually([&] { return domain->poll(completions) == 1; }))
      << "the peer had a connection, and the wire refuses";
  EXPECT_FALSE(completions[0].ok);
}

}  // namespace
}  // namespace braid::fabric
