// A name with several addresses, of which this host has some. The program has a resolver and
// sockets of its own: "localhost" is ::1 and 127.0.0.1, in this order, and there may be no IPv6.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "transfer/directory/socket.h"
#include "transfer/failure.h"

namespace {

bool is_ordered = false, has_ipv6 = true;

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                           addrinfo** list) {
  static const auto real = next<decltype(&getaddrinfo)>("getaddrinfo");
  if (!is_ordered || host == nullptr || std::strcmp(host, "localhost") != 0)
    return real(host, service, hints, list);
  addrinfo* second = nullptr;
  if (const int wrong = real("127.0.0.1", service, hints, &second); wrong != 0) return wrong;
  if (const int wrong = real("::1", service, hints, list); wrong != 0) return wrong;
  (*list)->ai_next = second;
  return 0;
}

extern "C" int socket(int family, int type, int protocol) noexcept {
  static const auto real = next<int (*)(int, int, int)>("socket");
  if (family != AF_INET6 || has_ipv6) return real(family, type, protocol);
  errno = EAFNOSUPPORT;
  return -1;
}

namespace braid::transfer {
namespace {

class TransferLocalhost : public testing::Test {
 protected:
  void SetUp() override { is_ordered = true; }
  void TearDown() override {
    is_ordered = false;
    has_ipv6 = true;
  }
  static uint64_t soon() { return monotonic_ns() + 20'000'000'000; }
};

TEST_F(TransferLocalhost, IsListenedAtAndFoundWithoutIpv6) {
  has_ipv6 = false;
  uint16_t port = 0;
  const auto listener = listen_at({"localhost", 0}, port);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  EXPECT_NE(port, 0);
  const auto by_name = connect_to({"localhost", port}, soon());
  EXPECT_TRUE(by_name.ok()) << by_name.status().message();
  EXPECT_TRUE(connect_to({"127.0.0.1", port}, soon()).ok());
}

TEST_F(TransferLocalhost, IsWhoeverListensAtTheSecondAddress) {
  uint16_t port = 0;
  const auto listener = listen_at({"127.0.0.1", 0}, port);
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  const auto found = connect_to({"localhost", port}, soon());
  EXPECT_TRUE(found.ok()) << found.status().message();
}

TEST_F(TransferLocalhost, WhereNobodyListensIsNoSegment) {
  uint16_t port = 0;
  { const auto gone = listen_at({"127.0.0.1", 0}, port); }
  for (const bool has : {true, false}) {
    has_ipv6 = has;
    const auto found = connect_to({"localhost", port}, soon());
    EXPECT_EQ(cause_of(found.status()), Cause::kNoSegment) << found.status().message();
  }
}

/// Peers that look for it would find whoever has the port at the first one.
TEST_F(TransferLocalhost, ATakenPortIsNotLeftForTheOtherAddress) {
  uint16_t port = 0;
  const auto taken = listen_at({"localhost", 0}, port);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  const auto again = listen_at({"localhost", port}, port);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(cause_of(again.status()), Cause::kNone) << "no peer is lost";
}

}  // namespace
}  // namespace braid::transfer
