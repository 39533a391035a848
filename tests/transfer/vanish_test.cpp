// A rail that vanishes silently, in the middle of a write, and comes back: two network namespaces
// with two links, one of which is taken down. Needs root and iproute2; elsewhere it is skipped.
#include <sched.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "transfer/owner.h"

namespace braid::transfer::test {
namespace {

using Cause = Transfer::Cause;
constexpr size_t kBytes = 16 << 20;

bool run(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// This process moves to a namespace of its own; the owner runs in another one.
class TransferVanish : public testing::Test {
 protected:
  static constexpr const char* kLinks[] = {"braidv0", "braidv1"};

  void SetUp() override {
    there_ = "braidv" + std::to_string(getpid());
    if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0 || !run("ip netns add " + there_))
      GTEST_SKIP() << "needs root, network namespaces and iproute2";
    bool is_up = run("ip link set lo up");
    for (int rail = 0; rail < 2; ++rail) {
      const std::string link = kLinks[rail], peer = link + "p";
      const std::string net = "10.214." + std::to_string(rail) + ".";
      is_up = is_up &&
              run("ip link add " + link + " type veth peer name " + peer + " netns " + there_) &&
              run("ip address add " + net + "1/24 dev " + link) &&
              run("ip link set " + link + " up") &&
              run("ip -n " + there_ + " address add " + net + "2/24 dev " + peer) &&
              run("ip -n " + there_ + " link set " + peer + " up");
      // Each takes 10 ms for a megabyte, so that there is time to take it away.
      is_up = is_up &&
              run("tc qdisc add dev " + link + " root tbf rate 800mbit burst 256kb latency 50ms");
    }
    if (!is_up) GTEST_SKIP() << "links between network namespaces cannot be made here";
  }
  void TearDown() override { (void)run("ip netns delete " + there_); }

  std::string there_;
};

TEST_F(TransferVanish, FailsNothingAndIsUsedAgainWhenItIsBack) {
  Owner owner({"netns=" + there_, "provider=tcp;ofi_rxm", "address=10.214.0.2",
               "address=10.214.1.2", "insecure=1", "bytes=" + std::to_string(kBytes)});
  Transfer::Options options;
  options.providers = {"tcp;ofi_rxm"};
  options.addresses = {"10.214.0.1", "10.214.1.1"};
  options.allow_unauthenticated = true;
  Initiator me(owner, options, kBytes);
  const uint64_t there = owner.addresses[Owner::kBoth];
  const auto move = [&](uint64_t seed) {
    fill(me.memory, seed);
    EXPECT_EQ(me.run({me.write(there, kBytes)}), std::vector{Cause::kDone}) << seed;
    EXPECT_EQ(owner.check(Owner::kBoth, seed, 0, kBytes), "right") << seed;
  };
  move(1);
  for (uint64_t turn = 0; turn < 3; ++turn) {
    const std::string link = kLinks[turn % 2];
    fill(me.memory, 10 + turn);
    const Transfer::Batch batch = me.submit({me.write(there, kBytes)});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // Packets are dropped from now on; no socket is told.
    ASSERT_TRUE(run("ip -n " + there_ + " link set " + link + "p down"));
    for (const auto& outcome : me.end(batch)) EXPECT_EQ(outcome.cause, Cause::kDone) << turn;
    EXPECT_EQ(owner.check(Owner::kBoth, 10 + turn, 0, kBytes), "right") << turn;
    owner.fill(Owner::kBoth, 40 + turn);
    move(20 + turn);  // over the other rail alone
    owner.fill(Owner::kBoth, 40 + turn);
    ASSERT_TRUE(run("ip -n " + there_ + " link set " + link + "p up"));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_EQ(owner.check(Owner::kBoth, 40 + turn, 0, kBytes), "right") << "nothing lands late";
    const auto is_back = [&] {
      const std::string report = me.transfer.report(Transfer::Form::kJson).value();
      size_t up = 0;
      for (size_t at = 0; (at = report.find("\"state\":\"up\"", at)) != std::string::npos; ++at)
        ++up;
      return up == 2;
    };
    uint64_t moves = 0;
    EXPECT_TRUE(eventually([&] {
      move(100 + moves++);
      return is_back() || HasFailure();
    })) << me.transfer.report(Transfer::Form::kText).value();
  }
}

}  // namespace
}  // namespace braid::transfer::test
