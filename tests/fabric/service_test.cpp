// The engine behind the C interface, where callers break off.
#include "fabric/library/service.h"

#include <gtest/gtest.h>

#include <new>

#include "topology/machine.h"

namespace braid::fabric {
namespace {

TEST(Service, AWaitThatThrowsLeavesTheEngineToItsThread) {
  const auto open = [] {
    return Service::open({.provider = "tcp;ofi_rxm", .addresses = {"127.0.0.1"}},
                         topology::Machine(), {});
  };
  auto opened = open();
  if (!opened.ok()) GTEST_SKIP() << opened.status().message();
  const std::unique_ptr<Service> owner = std::move(opened).value();
  EXPECT_THROW(owner->wait(1'000'000, [](Engine&) -> bool { throw std::bad_alloc(); }),
               std::bad_alloc);
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

}  // namespace
}  // namespace braid::fabric
