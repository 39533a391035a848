// Engines of two users of one host, of whom none is root, by the public library.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "braid/transfer.h"
#include "fabric/telling_process.h"

namespace braid {
namespace {

using fabric::test::TellingProcess;

constexpr uid_t kOneUser = 65534, kOtherUser = 65533;
constexpr std::chrono::seconds kLimit{20};

struct Wanted {
  std::vector<std::string> providers = {};
  bool has_secret = false;
};

/// The same secret for every user, who has a file of their own with it.
std::string own_secret_file() {
  const std::string path = "/tmp/braid-transfer-users-test-" + std::to_string(getpid());
  std::ofstream(path) << "a secret of more than sixteen bytes";
  chmod(path.c_str(), 0600);
  return path;
}

/// Of a process, until it ends.
Transfer& engine_of(uid_t user, const Wanted& wanted) {
  static std::optional<Transfer> engine;
  if (setuid(user) != 0) throw std::runtime_error("it cannot be that user");
  Transfer::Options options;
  options.providers = wanted.providers;
  if (wanted.has_secret) options.secret_file = own_secret_file();
  auto opened = Transfer::open(options);
  if (!options.secret_file.empty()) unlink(options.secret_file.c_str());
  engine.emplace(std::move(opened).value());
  return *engine;
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
