// The engine behind the C interface, where callers break off.
#include "fabric/library/service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

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

/// A callback's call may have begun before the end, and may go on during it.
struct Called {
  Service* service = nullptr;
  std::atomic<bool> has_begun = false;
  std::atomic<int> events = 0;
  Status asked, counted;

  static void call_while_it_is_closed(const braid_fabric_event* event) {
    auto& told = *static_cast<Called*>(event->user);
    if (++told.events > 1) return;
    told.has_begun = true;
    while (!told.service->is_ending()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the end waits for this callback
    const Sink sink{call_while_it_is_closed, &told};
    told.asked = told.service->ask(sink, [](Engine& engine, uint64_t request) {
      engine.watch_messages(request);
      return Status();
    });
    told.counted =
        told.service->with([](Engine& engine) { return engine.counters().acquire().status(); });
    braid_fabric_event taken;
    EXPECT_EQ(told.service->events().take({&taken, 1}), 0u);
  }
};

TEST(Service, ACallThatACallbackHasBegunEndsBeforeTheEngine) {
  auto opened = Service::open({.provider = "local"}, topology::Machine(), {});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  std::unique_ptr<Service> service = std::move(opened).value();
  Called told;
  told.service = service.get();
  ASSERT_TRUE(service
                  ->ask({Called::call_while_it_is_closed, &told},
                        [](Engine& engine, uint64_t request) {
                          return engine.when_counted(engine.counters().acquire().value(), 0,
                                                     request);
                        })
                  .ok());
  while (!told.has_begun) std::this_thread::yield();
  service.reset();
  EXPECT_EQ(told.asked.message(), "this engine is being closed");
  EXPECT_TRUE(told.counted.ok()) << "the engine was there still";
  EXPECT_EQ(told.events, 1) << "a request that was refused has no event";
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
