// The engine behind the C interface, where callers break off.
#include "fabric/library/service.h"

#include <gtest/gtest.h>

#include <new>

#include "topology/machine.h"

namespace braid::fabric {
namespace {

/// `calls`: how often it is asked before it throws. The caller drives from the second time on.
void expect_that_a_throw_leaves_the_engine(int calls) {
  const auto open = [] {
    return Service::open({.provider = "tcp;ofi_rxm", .addresses = {"127.0.0.1"}},
                         topology::Machine(), {});
  };
  auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const std::unique_ptr<Service> owner = std::move(opened).value();
  const auto throws_at_last = [&](Engine&) -> bool {
    if (--calls > 0) return false;
    throw std::bad_alloc();
  };
  EXPECT_THROW(owner->wait(1'000'000, throws_at_last), std::bad_alloc);
  const std::unique_ptr<Service> other = open().value();
  const Address address = owner->with([](Engine& engine) { return engine.address(); });
  const uint64_t peer = other
                            ->with([&](Engine& engine) {
                              return engine.connect(address, monotonic_after_ns(10'000'000));
                            })
                            .value();
  EXPECT_TRUE(other->wait(10'000'000, [&](Engine& engine) {
    return engine.peer_state(peer).value() == PeerState::kConnected;
  })) << "nobody steps the owner";
}

TEST(Service, AWaitThatThrowsAtOnceLeavesTheEngineToItsThread) {
  expect_that_a_throw_leaves_the_engine(1);
}

TEST(Service, AWaitThatThrowsWhileItDrivesLeavesTheEngineToItsThread) {
  expect_that_a_throw_leaves_the_engine(2);
}

TEST(Service, AQuestionThatThrowsIsLeftToTheCallerThatAskedIt) {
  Drivers drivers;
  Sleeper sleeper;
  sleeper.is_met = []() -> bool { throw std::bad_alloc(); };
  drivers.sleepers.push_back(&sleeper);
  EXPECT_NO_THROW(drivers.tell());
  EXPECT_TRUE(sleeper.woken.is_released()) << "nobody wakes it";
  EXPECT_FALSE(sleeper.has_come);
  EXPECT_THROW(std::rethrow_exception(sleeper.thrown), std::bad_alloc);
}

}  // namespace
}  // namespace braid::fabric
