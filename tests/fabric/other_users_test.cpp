// shm between processes of two users, of whom none is root.
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "fabric/ofi/domain.h"
#include "fabric/ofi/quirks.h"
#include "fabric/telling_process.h"
#include "fabric/two_users.h"

namespace braid::fabric::ofi {
namespace {

/// Of a process, until it ends.
Domain& domain_of(uid_t user) {
  test::become(user);
  static std::unique_ptr<Domain> domain = open_domain(shm_quirks(), "").value();
  return *domain;
}

TEST(OtherUsersTest, AnEndpointOfAnotherUserIsRefusedWithTheCause) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two other users";
  const test::TellingProcess owner([] {
    const Bytes address = domain_of(test::kOneUser).address();
    return std::string(reinterpret_cast<const char*>(address.data()), address.size());
  });
  ASSERT_FALSE(owner.told().empty());
  const auto connected_by = [&](uid_t user) {
    const test::TellingProcess process([&] {
      const auto* address = reinterpret_cast<const std::byte*>(owner.told().data());
      const auto peer = domain_of(user).connect({address, owner.told().size()});
      return peer.ok() ? "connected" : peer.status().message();
    });
    return process.told();
  };
  EXPECT_EQ(connected_by(test::kOneUser), "connected");
  EXPECT_EQ(connected_by(test::kOtherUser),
            "shm: the peer is another user's process. Run both as one user, or use another "
            "provider of libfabric");
}

}  // namespace
}  // namespace braid::fabric::ofi
