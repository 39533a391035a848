// Engines of two users of one host, of whom none is root, by the public library.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>

#include "braid/fabric.h"
#include "fabric/telling_process.h"
#include "fabric/two_users.h"

namespace braid::test {
namespace {

using fabric::test::kOneUser;
using fabric::test::kOtherUser;
constexpr std::chrono::seconds kLimit{30};

struct Wanted {
  const char* provider;
  bool has_secret = false;
};

Fabric& engine_of(uid_t user, const Wanted& wanted) {
  return fabric::test::engine_of<Fabric>(user, Fabric::Options{wanted.provider, {"127.0.0.1"}},
                                         wanted.has_secret);
}

/// An engine that others connect to.
class Owner {
 public:
  explicit Owner(const Wanted& wanted)
      : process_([&] {
          const auto address = engine_of(kOneUser, wanted).address().value();
          return std::string(reinterpret_cast<const char*>(address.data()), address.size());
        }) {}
  Fabric::ByteList address() const {
    Fabric::ByteList bytes(process_.told().size());
    std::memcpy(bytes.data(), process_.told().data(), bytes.size());
    return bytes;
  }

 private:
  const fabric::test::TellingProcess process_;
};

std::string connected_by(uid_t user, const Owner& owner, const Wanted& wanted) {
  const fabric::test::TellingProcess process([&] {
    const auto peer = engine_of(user, wanted).connect(owner.address(), kLimit);
    return peer.ok() ? std::string("connected") : peer.status().message();
  });
  return process.told();
}

class LibraryUsersTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be two other users";
  }
};

INSTANTIATE_TEST_SUITE_P(All, LibraryUsersTest, testing::Values("tcp;ofi_rxm", "net"),
                         [](const auto& all) {
                           return std::string(all.param) == "net" ? "net" : "tcp";
                         });

TEST_P(LibraryUsersTest, WithoutASecretAnotherUserIsRefusedWithTheCause) {
  const Owner owner({GetParam()});
  ASSERT_FALSE(owner.address().empty());
  EXPECT_EQ(connected_by(kOneUser, owner, {GetParam()}), "connected");
  const std::string why = connected_by(kOtherUser, owner, {GetParam()});
  EXPECT_NE(why.find("the peer at 127.0.0.1:"), why.npos) << why;
  EXPECT_NE(why.find("is another user's process. Run both as one user, or give both engines the "
                     "same secret (BRAID_FABRIC_SECRET_FILE)"),
            why.npos)
      << why;
  EXPECT_EQ(connected_by(kOneUser, owner, {GetParam()}), "connected") << "it alone was refused";
}

TEST_P(LibraryUsersTest, RootsEngineIsNoPeerOfAUsersEngine) {
  const Owner owner({GetParam()});
  EXPECT_NE(connected_by(0, owner, {GetParam()}).find("is another user's process"),
            std::string::npos);
}

TEST_P(LibraryUsersTest, WithTheSecretAnotherUserIsAPeer) {
  const Wanted wanted{GetParam(), true};
  const Owner owner(wanted);
  ASSERT_FALSE(owner.address().empty());
  EXPECT_EQ(connected_by(kOneUser, owner, wanted), "connected");
  EXPECT_EQ(connected_by(kOtherUser, owner, wanted), "connected");
}

}  // namespace
}  // namespace braid::test
