// TCP: a network that breaks without a word and comes back, seen by what the kernel's sockets let
// through. A filter at a socket drops packets as a broken network does.
#include <dirent.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fabric/contract.h"
#include "fabric/ofi/connections.h"
#include "fabric/ofi/domain.h"
#include "fabric/ofi/knocks.h"

namespace braid::fabric {
namespace {

using test::End;

class VanishedConnectionTest : public testing::Test {
 protected:
  void SetUp() override {
    for (End* end : {&writer_, &target_}) {
      auto opened = ofi::open_domain(*ofi::find_quirks("tcp;ofi_rxm"), "127.0.0.1");
      ASSERT_TRUE(opened.ok()) << opened.status().message();
      end->domain = std::move(opened).value();
    }
    const uint32_t into = target_.domain->add_region(buffers_, Access::kLocal).value();
    for (uint64_t i = 0; i < kBuffers; ++i)
      ASSERT_TRUE(target_.domain->post_receive(
          into, MutableBytes(buffers_).subspan(i * kBufferBytes, kBufferBytes), i));
    region_ = writer_.domain->add_region(message_, Access::kLocal).value();
    peer_ = writer_.domain->connect(target_.domain->address()).value();
    ASSERT_TRUE(arrives());
  }
  bool wait(const std::function<bool()>& until) {
    for (test::Patience patience(2'000'000); !patience.is_over();) {
      if (until()) return true;
      writer_.poll();
      target_.poll();
    }
    return until();
  }
  /// False: there is no connection yet. A message over one that has just ended fails.
  bool is_posted() {
    const bool is_posted = writer_.domain->post_send(peer_, region_, message_, contexts_ + 1);
    contexts_ += is_posted ? 1 : 0;
    return is_posted;
  }
  /// Posts messages until one arrives.
  bool arrives() {
    const size_t before = target_.received_bytes.size();
    const auto is_over = [&] {
      if (target_.received_bytes.size() > before) return true;
      if (writer_.ended.size() == contexts_) (void)is_posted();
      return false;
    };
    return wait(is_over) &&
           std::memcmp(&buffers_[before * kBufferBytes], message_.data(), message_.size()) == 0;
  }
  void give_up_and_connect_again() {
    writer_.domain->abandon(peer_, Absence::kSilent);
    writer_.domain->disconnect(peer_);
    peer_ = writer_.domain->connect(target_.domain->address()).value();
  }

  /// From now on the socket gets only TCP packets for which these instructions return a size.
  static void filter(int descriptor, std::vector<sock_filter> steps) {
    const sock_fprog program{static_cast<unsigned short>(steps.size()), steps.data()};
    ASSERT_EQ(setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
  }
  static std::vector<sock_filter> nothing() { return {BPF_STMT(BPF_RET | BPF_K, 0)}; }
  static std::vector<sock_filter> resets_alone() {
    constexpr uint32_t kFlags = 13, kReset = 4;
    return {BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kFlags),
            BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kReset, 1, 0), BPF_STMT(BPF_RET | BPF_K, 0),
            BPF_STMT(BPF_RET | BPF_K, 0xffff)};
  }
  static std::vector<sock_filter> all_but_from(const std::vector<ofi::Connection>& attempts) {
    std::vector<sock_filter> steps{BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0)};
    for (const ofi::Connection& attempt : attempts) {
      steps.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port_of(attempt.descriptor), 0, 1));
      steps.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
    }
    steps.push_back(BPF_STMT(BPF_RET | BPF_K, 0xffff));
    return steps;
  }
  static uint16_t port_of(int descriptor) {
    sockaddr_in name{};
    socklen_t name_bytes = sizeof name;
    getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &name_bytes);
    return ntohs(name.sin_port);
  }
  /// The socket that listens at the target's address.
  int listener() {
    sockaddr_in address{};
    std::memcpy(&address, target_.domain->address().data(), sizeof address);
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
    while (const dirent* entry = readdir(folder.get())) {
      const int descriptor = std::atoi(entry->d_name);
      int listens = 0;
      socklen_t size = sizeof listens;
      if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
          port_of(descriptor) == ntohs(address.sin_port))
        return descriptor;
    }
    return -1;
  }

  static constexpr size_t kBuffers = 4, kBufferBytes = 4096;
  std::vector<std::byte> buffers_ = std::vector<std::byte>(kBuffers * kBufferBytes);
  std::vector<std::byte> message_ = std::vector<std::byte>(100, std::byte{7});
  uint32_t region_ = 0, peer_ = 0;
  uint64_t contexts_ = 0;
  End writer_, target_;
};

/// libfabric refuses a second connection from a process while it has the first one.
TEST_F(VanishedConnectionTest, IsReplacedAlthoughThePeerHasNotHeardOfItsEnd) {
  const auto incoming = ofi::Connections().incoming_at(target_.domain->address());
  ASSERT_EQ(incoming.size(), 1u);
  filter(incoming.front().descriptor, resets_alone());
  give_up_and_connect_again();
  EXPECT_TRUE(arrives());
}

TEST_F(VanishedConnectionTest, IsReplacedAlthoughTheFirstPacketWasLost) {
  const int listening = listener();
  ASSERT_GE(listening, 0);
  filter(listening, nothing());
  give_up_and_connect_again();
  std::vector<ofi::Connection> attempts;
  ASSERT_TRUE(wait([&] {
    (void)is_posted();
    attempts = ofi::Connections().connecting_to(target_.domain->address());
    return attempts.size() == 2;
  })) << "libfabric's and a knock";
  filter(listening, all_but_from(attempts));
  EXPECT_TRUE(arrives());
}

/// As where the route to the peer is gone: the kernel says so at once.
TEST_F(VanishedConnectionTest, IsNotAnsweredByAKnockThatCannotBeSent) {
  sockaddr_in far{};
  std::memcpy(&far, target_.domain->address().data(), sizeof far);
  far.sin_addr.s_addr = htonl(0xc0000201);  // 192.0.2.1: it is not reached from loopback
  ofi::Knocks knocks(writer_.domain->address());
  knocks.given_up({reinterpret_cast<const std::byte*>(&far), sizeof far}, {});
  for (uint64_t seconds = 100; seconds < 110; ++seconds)
    knocks.look(seconds * 1'000'000'000, [](const auto&) { return true; });
  EXPECT_FALSE(knocks.is_empty()) << "nobody has answered";
}

/// The kernel would keep its descriptor for as long as TCP repeats the end: many minutes.
TEST_F(VanishedConnectionTest, IsKeptForAMinuteIfNobodyWantsALinkThere) {
  const Bytes address = target_.domain->address();
  const auto incoming = ofi::Connections().incoming_at(address),
             outgoing = ofi::Connections().outgoing_to(address);
  ASSERT_EQ(incoming.size(), 1u);
  ASSERT_EQ(outgoing.size(), 1u);
  filter(incoming.front().descriptor, nothing());
  std::vector<File> held;
  held.push_back(ofi::hold(outgoing.front()));
  ofi::shut_down(outgoing.front());
  ASSERT_TRUE(ofi::waits_for_its_end(held.front()));
  ofi::Knocks knocks(writer_.domain->address());
  knocks.given_up(address, std::move(held));
  const auto look = [&](uint64_t seconds, bool is_wanted) {
    knocks.look(seconds * 1'000'000'000, [&](const auto&) { return is_wanted; });
  };
  look(100, false);
  look(150, false);
  EXPECT_FALSE(knocks.is_empty());
  look(161, false);
  EXPECT_TRUE(knocks.is_empty());
}

}  // namespace
}  // namespace braid::fabric
