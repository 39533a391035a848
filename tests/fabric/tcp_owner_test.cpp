// Whose TCP sockets are, by each table of the kernel.
#include "host/tcp_owner.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

#include "fabric/telling_process.h"
#include "fabric/two_users.h"
#include "host/addresses.h"
#include "host/file.h"

namespace braid {
namespace {

using fabric::test::kOtherUser;

TcpEnd end_of(const std::string& host, in_port_t port) {
  const AddressList found = look_up_host(host, 0, AddressUse::kConnect).value();
  TcpEnd end = TcpEnd::of(found->ai_addr, found->ai_addrlen).value();
  end.port = port;
  return end;
}

/// Not open: this host has no such address.
File listen_at(const std::string& host, in_port_t port = 0) {
  const AddressList at = look_up_host(host, ntohs(port), AddressUse::kListen).value();
  File listener(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool listens =
      bind(listener.get(), at->ai_addr, at->ai_addrlen) == 0 && listen(listener.get(), 8) == 0;
  return listens ? std::move(listener) : File();
}

File connect_to(const std::string& host, in_port_t port) {
  const AddressList at = look_up_host(host, ntohs(port), AddressUse::kConnect).value();
  File connection(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(connection.get(), at->ai_addr, at->ai_addrlen), 0);
  return connection;
}

class TcpOwnerTest : public testing::TestWithParam<TcpTable> {
 protected:
  std::optional<uid_t> listener_at(const std::string& host, in_port_t port) const {
    const auto found = listening_user(end_of(host, port), GetParam());
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? found.value() : std::nullopt;
  }
  /// Of the socket at the other end of this one.
  std::optional<uid_t> other_end_of(const File& connection) const {
    const auto found = connected_user(TcpEnd::peer_of(connection.get()).value(),
                                      TcpEnd::own_of(connection.get()).value(), GetParam());
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? found.value() : std::nullopt;
  }
};

INSTANTIATE_TEST_SUITE_P(All, TcpOwnerTest, testing::Values(TcpTable::kSockDiag, TcpTable::kProc),
                         [](const auto& all) {
                           return all.param == TcpTable::kProc ? "proc" : "sock_diag";
                         });

TEST_P(TcpOwnerTest, AListenerIsFoundAtItsAddressAlone) {
  const File listener = listen_at("127.0.0.1");
  const in_port_t port = TcpEnd::own_of(listener.get())->port;
  EXPECT_EQ(listener_at("127.0.0.1", port), geteuid());
  EXPECT_EQ(listener_at("127.0.0.2", port), std::nullopt);
  EXPECT_EQ(listener_at("::1", port), std::nullopt);
}

TEST_P(TcpOwnerTest, NobodyListensAtAPortThatWasGivenUp) {
  in_port_t port = 0;
  { port = TcpEnd::own_of(listen_at("127.0.0.1").get())->port; }
  EXPECT_EQ(listener_at("127.0.0.1", port), std::nullopt);
}

TEST_P(TcpOwnerTest, AListenerAtAllAddressesIsFoundAtEach) {
  const File listener = listen_at("0.0.0.0");
  const in_port_t port = TcpEnd::own_of(listener.get())->port;
  EXPECT_EQ(listener_at("127.0.0.1", port), geteuid());
  EXPECT_EQ(listener_at("127.0.0.2", port), geteuid());
}

TEST_P(TcpOwnerTest, AListenerOfIpv6IsFound) {
  const File one = listen_at("::1"), all = listen_at("::");
  if (!one.is_open() || !all.is_open()) GTEST_SKIP() << "this host has no IPv6";
  EXPECT_EQ(listener_at("::1", TcpEnd::own_of(one.get())->port), geteuid());
  const in_port_t port = TcpEnd::own_of(all.get())->port;
  EXPECT_EQ(listener_at("::1", port), geteuid());
  EXPECT_EQ(listener_at("127.0.0.1", port), geteuid()) << "it takes IPv4 too";
}

TEST_P(TcpOwnerTest, WhoHasConnectedIsKnownUntilItCloses) {
  const File listener = listen_at("127.0.0.1");
  File client = connect_to("127.0.0.1", TcpEnd::own_of(listener.get())->port);
  const File accepted(accept(listener.get(), nullptr, nullptr));
  EXPECT_EQ(other_end_of(accepted), geteuid());
  EXPECT_EQ(other_end_of(client), geteuid());
  const TcpEnd its = TcpEnd::peer_of(accepted.get()).value();
  { const File closed = std::move(client); }
  EXPECT_EQ(connected_user(its, TcpEnd::own_of(accepted.get()).value(), GetParam()).value(),
            std::nullopt);
}

/// A listener at the port of a client that has gone is no client.
TEST_P(TcpOwnerTest, AListenerIsNoConnection) {
  const File listener = listen_at("127.0.0.1"), other = listen_at("127.0.0.1");
  EXPECT_EQ(connected_user(TcpEnd::own_of(listener.get()).value(),
                           TcpEnd::own_of(other.get()).value(), GetParam())
                .value(),
            std::nullopt);
}

TEST_P(TcpOwnerTest, AnotherUserIsNamed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const File listener = listen_at("127.0.0.1");
  const in_port_t port = TcpEnd::own_of(listener.get())->port;
  const fabric::test::TellingProcess other([&] {
    fabric::test::become(kOtherUser);
    static const File own = listen_at("127.0.0.1"), connected = connect_to("127.0.0.1", port);
    return std::to_string(TcpEnd::own_of(own.get())->port);
  });
  ASSERT_FALSE(other.told().empty());
  const File accepted(accept(listener.get(), nullptr, nullptr));
  EXPECT_EQ(other_end_of(accepted), kOtherUser);
  EXPECT_EQ(listener_at("127.0.0.1", static_cast<in_port_t>(std::stoul(other.told()))), kOtherUser);
}

TEST(TcpEndTest, AnAddressOfThisHostIsHere) {
  EXPECT_TRUE(end_of("127.0.0.1", 1).is_here().value());
  EXPECT_TRUE(end_of("127.9.9.9", 1).is_here().value());
  EXPECT_TRUE(end_of("::1", 1).is_here().value());
  EXPECT_FALSE(end_of("192.0.2.1", 1).is_here().value()) << "documents alone have this one";
  EXPECT_FALSE(end_of("2001:db8::1", 1).is_here().value());
}

/// A process without a descriptor must not take its own host for another one.
TEST(TcpEndTest, WithoutASocketNothingIsKnown) {
  const TcpEnd far = end_of("192.0.2.1", 1);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &none);
  EXPECT_FALSE(far.is_here().ok());
  EXPECT_FALSE(listening_user(far, TcpTable::kSockDiag).ok());
  EXPECT_FALSE(listening_user(far, TcpTable::kProc).ok());
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(TcpEndTest, AnEndHasAText) {
  EXPECT_EQ(end_of("127.0.0.1", htons(80)).text(), "127.0.0.1:80");
  EXPECT_EQ(end_of("::1", htons(80)).text(), "[::1]:80");
}

TEST(TcpEndTest, OtherBytesAreNoEnd) {
  const std::array<std::byte, 64> bytes{};
  EXPECT_FALSE(TcpEnd::of(bytes.data(), bytes.size()));
  EXPECT_FALSE(TcpEnd::of(bytes.data(), 2));
}

}  // namespace
}  // namespace braid
