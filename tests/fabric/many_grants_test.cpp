// What it costs to end thousands of grants, or the connection that they belong to.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "fabric/granting.h"
#include "fabric/small_net.h"
#include "support/cpu_time.h"

namespace braid::fabric {
namespace {

using test::Granting;
using test::SmallNet;

/// Of this thread, so that others do not count.
double cpu_s(const std::function<void()>& work) {
  const double begun_s = braid::test::cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
  work();
  return braid::test::cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - begun_s;
}

/// Grants with a target and a write each, of which nothing has begun.
struct ManyGrants {
  explicit ManyGrants(size_t count) : given(net, net.add(1), net.add(2), 64) {
    grants.push_back(given.granted.grant);
    for (size_t i = 0; i < count; ++i) {
      const Granted granted = given.owner.engine->grant(given.region, given.peer, 0, 64).value();
      grants.push_back(granted.grant);
      given.target = given.writer.engine->open_target(granted.descriptor).value();
      given.write(0, 64);
    }
  }
  double revoking_s() {
    return cpu_s([&] {
      for (const uint64_t grant : grants)
        EXPECT_TRUE(given.owner.engine->revoke(grant, net.now_ns() + 1'000'000).ok());
    });
  }
  double disconnecting_s() {
    const uint64_t owner = net.number_of(given.owner, given.writer);
    return cpu_s([&] { EXPECT_TRUE(given.writer.engine->disconnect(owner).ok()); });
  }

  SmallNet net;
  Granting given;
  std::vector<uint64_t> grants;
};

/// What takes 16 times as long for each of 16 times as many would take 256 times as long.
TEST(ManyGrantsTest, TheTimeToEndThemGrowsWithTheirNumberOnly) {
  constexpr size_t kFew = 1000, kTimes = 16;
  ManyGrants few(kFew), many(kTimes * kFew);
  EXPECT_LT(many.revoking_s(), 6 * kTimes * few.revoking_s());
  EXPECT_LT(many.disconnecting_s(), 6 * kTimes * few.disconnecting_s());
}

}  // namespace
}  // namespace braid::fabric
