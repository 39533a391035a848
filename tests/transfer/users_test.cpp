// Engines of two users of one host, of whom none is root, by the public library.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "braid/transfer.h"
#include "fabric/telling_process.h"
#include "fabric/two_users.h"

namespace braid {
namespace {

using fabric::test::TellingProcess;

using fabric::test::kOneUser;
using fabric::test::kOtherUser;
constexpr std::chrono::seconds kLimit{20};

struct Wanted {
  std::vector<std::string> providers = {};
  bool has_secret = false;
};

Transfer& engine_of(uid_t user, const Wanted& wanted) {
  Transfer::Options options;
  options.providers = wanted.providers;
  return fabric::test::engine_of<Transfer>(user, options, wanted.has_secret);
}

std::string name_of_owner(const Wanted& wanted) {
  return engine_of(kOneUser, wanted).name().value();
}

std::string opened_by(uid_t user, const std::string& name, const Wanted& wanted) {
  const TellingProcess process([&] {
    const auto segment = engine_of(user, wanted).open_segment(name, kLimit);
    return segment.ok() ? std::string("opened") : segment.status().message();
  });
  return process.told();
}

class TransferUsersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be two other users";
  }
};

TEST_F(TransferUsersTest, WithoutASecretAnotherUserIsRefusedWithTheCause) {
  for (const Wanted& wanted : {Wanted{}, Wanted{{"tcp;ofi_rxm"}}}) {
    const TellingProcess owner([&] { return name_of_owner(wanted); });
    ASSERT_FALSE(owner.told().empty());
    EXPECT_EQ(opened_by(kOneUser, owner.told(), wanted), "opened");
    const std::string why = opened_by(kOtherUser, owner.told(), wanted);
    EXPECT_NE(why.find("the engine at 127.0.0.1:"), why.npos) << why;
    EXPECT_NE(why.find("is another user's process. Run both as one user, or give both engines the "
                       "same secret (BRAID_FABRIC_SECRET_FILE)"),
              why.npos)
        << why;
  }
}

TEST_F(TransferUsersTest, WithTheSecretAnotherUserIsAPeer) {
  const Wanted wanted{{"tcp;ofi_rxm"}, true};
  const TellingProcess owner([&] { return name_of_owner(wanted); });
  ASSERT_FALSE(owner.told().empty());
  EXPECT_EQ(opened_by(kOneUser, owner.told(), wanted), "opened");
  EXPECT_EQ(opened_by(kOtherUser, owner.told(), wanted), "opened");
}

}  // namespace
}  // namespace braid
