// TCP: many peers are lost at once, as when a switch fails. To list a process's descriptors takes
// tens of milliseconds with a thousand peers, so one list must serve all that are lost.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "fabric/contract.h"
#include "fabric/ofi/connections.h"
#include "fabric/ofi/domain.h"

namespace {

std::atomic<int> listings = 0;

}  // namespace

/// Instead of the C library's: counts how often this process's descriptors are listed.
extern "C" DIR* opendir(const char* folder) {
  static const auto real = reinterpret_cast<DIR* (*)(const char*)>(dlsym(RTLD_NEXT, "opendir"));
  if (std::strcmp(folder, "/proc/self/fd") == 0) ++listings;
  return real(folder);
}

namespace braid::fabric {
namespace {

using test::End;

class LostConnectionsTest : public testing::Test {
 protected:
  static constexpr size_t kTargets = 5;

  void SetUp() override {
    open(writer_);
    for (End& target : targets_) open(target);
    if (HasFatalFailure()) return;
    region_ = writer_.domain->add_region(source_, Access::kLocal).value();
  }
  static void open(End& end) {
    auto opened = ofi::open_domain(*ofi::find_quirks("tcp;ofi_rxm"), "127.0.0.1");
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    end.domain = std::move(opened).value();
  }
  bool wait(const std::function<bool()>& until) {
    for (test::Patience patience(2'000'000); !patience.is_over();) {
      if (until()) return true;
      writer_.poll();
      for (End& target : targets_) target.poll();
    }
    return until();
  }
  /// Returns the writer's number of the peer, to which a write has gone.
  uint32_t connect_to(Domain& target, Bytes address, uint32_t into) {
    Write write;
    write.peer = writer_.domain->connect(address).value();
    write.region = region_;
    write.source = source_;
    write.target_address = target.remote_range(into).base;
    write.target_key = target.remote_range(into).key;
    write.context = ++contexts_;
    EXPECT_TRUE(wait([&] { return writer_.domain->post_write(write); }));
    EXPECT_TRUE(wait([&] { return writer_.ended.contains(contexts_); }));
    EXPECT_EQ(writer_.ended[contexts_], std::vector{true});
    return write.peer;
  }
  static std::vector<File> established(Bytes address) {
    std::vector<File> held;
    for (const ofi::Connection& each : ofi::Connections().outgoing_to(address))
      if (File one = ofi::hold(each); one.is_open()) held.push_back(std::move(one));
    return held;
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(100), memory_ = source_;
  End writer_, targets_[kTargets];
  uint32_t region_ = 0;
  uint64_t contexts_ = 0;
};

TEST_F(LostConnectionsTest, OfManyPeersThatAreGivenUpTakeOneListing) {
  std::vector<uint32_t> peers;
  for (End& target : targets_) {
    const uint32_t into = target.domain->add_region(memory_, Access::kRemoteWrite).value();
    peers.push_back(connect_to(*target.domain, target.domain->address(), into));
  }
  const int before = listings;
  for (const uint32_t peer : peers) writer_.domain->abandon(peer, Absence::kSilent);
  EXPECT_EQ(listings - before, 1);
  for (End& target : targets_) EXPECT_TRUE(established(target.domain->address()).empty());
}

TEST_F(LostConnectionsTest, OfManyDoorsThatAreClosedTakeOneListing) {
  Domain& owner = *targets_[0].domain;
  std::vector<uint32_t> doors;
  for (size_t i = 0; i < kTargets; ++i) {
    doors.push_back(owner.open_door().value());
    const uint32_t into = owner.add_door_region(doors.back(), memory_).value();
    connect_to(owner, owner.door_address(doors.back()), into);
  }
  const int before = listings;
  for (const uint32_t door : doors) owner.close_door(door);
  EXPECT_EQ(listings - before, 1);
  for (const uint32_t door : doors)
    EXPECT_TRUE(wait([&] { return owner.drain_door(door) == Drain::kOver; }));
}

/// It would be cut off in the middle of its first write, at which libfabric faults.
TEST_F(LostConnectionsTest, OfADoorThatIsClosedAreItsLast) {
  Domain& owner = *targets_[0].domain;
  const uint32_t door = owner.open_door().value();
  const uint32_t into = owner.add_door_region(door, memory_).value();
  const Bytes name = owner.door_address(door);
  const std::vector<std::byte> address(name.begin(), name.end());
  connect_to(owner, address, into);
  owner.close_door(door);
  ASSERT_EQ(owner.drain_door(door), Drain::kEnding);
  const File late(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(connect(late.get(), reinterpret_cast<const sockaddr*>(address.data()),
                    static_cast<socklen_t>(address.size())),
            0)
      << "it is taken";
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_TRUE(wait([&] { return owner.drain_door(door) == Drain::kOver; }));
}

/// The list from before does not have it.
TEST_F(LostConnectionsTest, AreBrokenIfTheyWereOpenedAfterAnotherWasGivenUp) {
  Domain& first = *targets_[0].domain;
  const uint32_t into = first.add_region(memory_, Access::kRemoteWrite).value();
  const uint32_t lost = connect_to(first, first.address(), into);
  const Bytes address = targets_[1].domain->address();
  const uint32_t next = writer_.domain->connect(address).value();
  writer_.domain->abandon(lost, Absence::kSilent);
  (void)writer_.domain->post_send(next, region_, source_, 99);
  ASSERT_FALSE(established(address).empty()) << "libfabric connects at once";
  writer_.domain->abandon(next, Absence::kSilent);
  EXPECT_TRUE(established(address).empty());
}

}  // namespace
}  // namespace braid::fabric
