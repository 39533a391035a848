// Rails that break, stall and vanish under load: nothing fails, every byte is right, and nothing
// lands late.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/set_variable.h"
#include "tools/rail_sockets.h"
#include "transfer/owner.h"

namespace braid::transfer::test {
namespace {

using Cause = Transfer::Cause;
using braid::test::SetVariable;
constexpr size_t kBytes = 32 << 20;

/// Two rails of TCP on loopback.
struct TwoRails {
  TwoRails()
      : owner({"provider=tcp;ofi_rxm", "address=127.0.0.1", "bytes=" + std::to_string(kBytes)}),
        me(owner, options(), kBytes) {}
  static Transfer::Options options() {
    Transfer::Options options;
    options.providers = {"tcp;ofi_rxm"};
    options.addresses = {"127.0.0.1", "127.0.0.2"};
    return options;
  }
  /// Writes a pattern of its own, reads it back, and compares at both ends.
  void move(uint64_t seed) {
    const uint64_t there = owner.addresses[Owner::kBoth];
    fill(me.memory, seed);
    ASSERT_EQ(me.run({me.write(there, kBytes)}), std::vector{Cause::kDone});
    ASSERT_EQ(owner.check(Owner::kBoth, seed, 0, kBytes), "right");
    std::fill(me.memory.begin(), me.memory.end(), std::byte{0});
    ASSERT_EQ(me.run({me.read(there, kBytes)}), std::vector{Cause::kDone});
    ASSERT_EQ(wrong_at(me.memory, seed), std::nullopt);
  }

  Owner owner;
  Initiator me;
};

TEST(TransferRails, ConnectionsThatBreakUnderLoadFailNothing) {
  TwoRails rails;
  rails.move(1);
  int broken_here = 0, broken_there = 0;
  for (uint64_t turn = 0; turn < 6; ++turn) {
    const std::string address = turn % 2 == 0 ? "127.0.0.1" : "127.0.0.2";
    const uint64_t there = rails.owner.addresses[Owner::kBoth];
    fill(rails.me.memory, turn + 2);
    std::vector<Transfer::Request> requests;
    for (size_t at = 0; at < kBytes; at += 1 << 20)
      requests.push_back(rails.me.write(there + at, 1 << 20, at));
    const Transfer::Batch batch = rails.me.submit(requests);
    std::this_thread::sleep_for(std::chrono::milliseconds(turn));
    if (turn < 4)
      broken_here += tools::break_connections(address);
    else
      broken_there += std::stoi(rails.owner.ask("break " + address).substr(strlen("broken ")));
    for (const auto& outcome : rails.me.end(batch)) EXPECT_EQ(outcome.cause, Cause::kDone) << turn;
    EXPECT_EQ(rails.owner.check(Owner::kBoth, turn + 2, 0, kBytes), "right") << turn;
    rails.move(100 + turn);
  }
  EXPECT_GT(broken_here, 0);
  EXPECT_GT(broken_there, 0);
}

TEST(TransferRails, ARailWhoseListenerDiesFailsNothing) {
  TwoRails rails;
  rails.move(1);
  const Transfer::Batch batch =
      rails.me.submit({rails.me.write(rails.owner.addresses[Owner::kBoth], kBytes)});
  EXPECT_NE(rails.owner.ask("kill 127.0.0.2"), "");
  for (const auto& outcome : rails.me.end(batch)) EXPECT_EQ(outcome.cause, Cause::kDone);
  for (uint64_t turn = 0; turn < 3; ++turn) rails.move(2 + turn);
}

/// A NIC that is faster than one thread can copy gets several endpoints. Every byte of a write and
/// of a read is right, also when all connections break meanwhile.
TEST(TransferRails, SeveralEndpointsOfOneRailCarryOneRequest) {
  const SetVariable variable("BRAID_FABRIC_ENDPOINTS", "3");
  Owner owner({"provider=tcp;ofi_rxm", "address=127.0.0.1", "bytes=" + std::to_string(kBytes)});
  Transfer::Options options;
  options.providers = {"tcp;ofi_rxm"};
  options.addresses = {"127.0.0.1"};
  Initiator me(owner, options, kBytes);
  const uint64_t there = owner.addresses[Owner::kBoth];
  int broken = 0;
  for (uint64_t turn = 1; turn <= 4; ++turn) {
    fill(me.memory, turn);
    const Transfer::Batch written = me.submit({me.write(there, kBytes)});
    if (turn > 2) broken += tools::break_connections("127.0.0.1");
    for (const auto& outcome : me.end(written)) ASSERT_EQ(outcome.cause, Cause::kDone) << turn;
    ASSERT_EQ(owner.check(Owner::kBoth, turn, 0, kBytes), "right") << turn;
    std::fill(me.memory.begin(), me.memory.end(), std::byte{0});
    ASSERT_EQ(me.run({me.read(there, kBytes)}), std::vector{Cause::kDone}) << turn;
    ASSERT_EQ(wrong_at(me.memory, turn), std::nullopt) << turn;
  }
  EXPECT_GT(broken, 0);
  const std::string report = me.transfer.report(Transfer::Form::kJson).value();
  const nlohmann::json document = nlohmann::json::parse(report).at("braid_transfer");
  bool goes_over_three = false;  // links that have broken may still be there
  for (const nlohmann::json& link : document.at("links"))
    goes_over_three = goes_over_three || (link.at("is_up") && link.at("endpoints") == 3);
  EXPECT_TRUE(goes_over_three) << report;
}

TEST(TransferRails, ANumberOfEndpointsThatIsNoneIsNamed) {
  for (const char* wrong : {"0", "17", "two", "-1", "3 "}) {
    const SetVariable variable("BRAID_FABRIC_ENDPOINTS", wrong);
    Transfer::Options options;
    options.providers = {"tcp;ofi_rxm"};
    options.addresses = {"127.0.0.1"};
    const auto opened = Transfer::open(options);
    ASSERT_FALSE(opened.ok()) << wrong;
    EXPECT_NE(opened.status().message().find(std::string("BRAID_FABRIC_ENDPOINTS='") + wrong),
              std::string::npos)
        << opened.status().message();
  }
}

/// The owner stands still for longer than a slice may take: the writer sends its slices again,
/// another way or the same. Once the requests are done, what was late may not land any more.
/// (Memory that is mapped is moved by this side alone, and nothing is late: so the owner names
/// providers.) On a busy machine all slices may be through before the owner stands still, or none
/// of them late enough. So each stop is longer, and there are as many as it takes.
TEST(TransferRails, NothingThatWasLateLandsInMemoryThatIsUsedAgain) {
  for (const bool has_shared_memory : {false, true}) {
    std::vector<std::string> arguments{"bytes=" + std::to_string(kBytes)};
    Transfer::Options options;
    if (!has_shared_memory) {
      arguments.insert(arguments.end(),
                       {"provider=tcp;ofi_rxm", "address=127.0.0.1", "address=127.0.0.2"});
      options = TwoRails::options();
    } else {
      arguments.insert(arguments.end(), {"provider=shm", "provider=tcp;ofi_rxm"});
    }
    Owner owner(arguments);
    Initiator me(owner, options, kBytes);
    const uint64_t there = owner.addresses[Owner::kBoth];
    std::string report;
    const auto has_reissued = [&] {
      report = me.transfer.report(Transfer::Form::kJson).value();
      return nlohmann::json::parse(report).at("braid_transfer").at("reissued_slices") > 0;
    };
    for (uint64_t turn = 0; turn < 5 || (turn < 20 && !has_reissued()); ++turn) {
      fill(me.memory, 10 + turn);
      const Transfer::Batch batch = me.submit({me.write(there, kBytes)});
      owner.stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(std::min(30 << turn, 1000)));
      owner.signal(SIGCONT);
      for (const auto& outcome : me.end(batch)) ASSERT_EQ(outcome.cause, Cause::kDone) << turn;
      ASSERT_EQ(owner.check(Owner::kBoth, 10 + turn, 0, kBytes), "right") << turn;
      owner.fill(Owner::kBoth, 50 + turn);  // the memory is its owner's again
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ASSERT_EQ(owner.check(Owner::kBoth, 50 + turn, 0, kBytes), "right") << turn;
      std::fill(me.memory.begin(), me.memory.end(), std::byte{0});
      const Transfer::Batch read = me.submit({me.read(there, kBytes)});
      owner.stop();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      owner.signal(SIGCONT);
      for (const auto& outcome : me.end(read)) ASSERT_EQ(outcome.cause, Cause::kDone) << turn;
      ASSERT_EQ(wrong_at(me.memory, 50 + turn), std::nullopt) << turn;
      fill(me.memory, 90);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ASSERT_EQ(wrong_at(me.memory, 90), std::nullopt) << turn;
    }
    EXPECT_TRUE(has_reissued()) << report;
  }
}

}  // namespace
}  // namespace braid::transfer::test
