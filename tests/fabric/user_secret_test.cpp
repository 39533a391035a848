// The secret that engines of one user share on a host: one for all, and nobody else's.
#include "fabric/library/user_secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "fabric/library/service.h"
#include "fabric/telling_process.h"
#include "topology/machine.h"

namespace braid::fabric {
namespace {

namespace fs = std::filesystem;

const std::vector<std::byte> kBytes(10, std::byte{1});

class UserSecretTest : public testing::Test {
 protected:
  UserSecretTest() { fs::create_directory(folder_); }
  ~UserSecretTest() override { fs::remove_all(folder_); }

  std::string refusal() const {
    const Result<Secret> secret = user_secret(path_);
    return secret.ok() ? "" : secret.status().message();
  }
  void expect_refused(const std::string& why) const {
    EXPECT_NE(refusal().find(why), std::string::npos) << refusal();
    EXPECT_NE(refusal().find("BRAID_FABRIC_SECRET_FILE"), std::string::npos) << refusal();
  }

  const fs::path folder_ = testing::TempDir() + "secrets." + std::to_string(getpid());
  const std::string path_ = folder_ / "secret";
};

TEST_F(UserSecretTest, AllWhoComeAtOnceGetTheSame) {
  constexpr size_t kThreads = 16;
  std::vector<Seal> seals(kThreads);
  std::vector<std::thread> threads;
  for (Seal& seal : seals)
    threads.emplace_back([&] { seal = user_secret(path_).value().seal(kBytes); });
  for (std::thread& thread : threads) thread.join();
  for (const Seal& seal : seals) EXPECT_EQ(seal, seals.front());
  EXPECT_NE(seals.front(), Secret().seal(kBytes));
  struct stat about {};
  ASSERT_EQ(stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777u, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "a draft is left";
}

TEST_F(UserSecretTest, AFileThatOthersMayReadIsRefused) {
  std::ofstream(path_) << "known to everybody on this host";
  chmod(path_.c_str(), 0644);
  EXPECT_NE(refusal().find("others may read"), std::string::npos) << refusal();
}

/// root could read it, and so could who has put it there.
TEST_F(UserSecretTest, AFileOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make another user's file";
  std::ofstream(path_) << "known to its owner, too";
  chmod(path_.c_str(), 0600);
  ASSERT_EQ(chown(path_.c_str(), 65534, 65534), 0);
  expect_refused("is another user's");
}

TEST_F(UserSecretTest, ALinkIsRefused) {
  std::ofstream(folder_ / "target") << "somewhere else";
  chmod((folder_ / "target").c_str(), 0600);
  fs::create_symlink(folder_ / "target", path_);
  expect_refused("is another user's");
}

TEST_F(UserSecretTest, WhereItCannotBeMadeTheErrorNamesTheRemedy) {
  fs::remove(folder_);
  expect_refused("cannot be made: No such file or directory");
}

/// By default settings, at an address of this host.
std::unique_ptr<Service> open_as(uid_t user) {
  if (setuid(user) != 0) throw std::runtime_error("it cannot be that user");
  return Service::open({.provider = "tcp;ofi_rxm"}, topology::Machine(), {}).value();
}

TEST(UserSecret, EnginesOfAnotherUserDoNotConnect) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two other users";
  constexpr uid_t kOneUser = 65534, kOtherUser = 65533;
  static std::unique_ptr<Service> lasting;  // of the owner's process
  const test::TellingProcess owner([] {
    lasting = open_as(kOneUser);
    const auto address =
        lasting->with([](Engine& engine) { return encode(engine.address(), engine.secret()); });
    return std::string(reinterpret_cast<const char*>(address.data()), address.size());
  });
  ASSERT_FALSE(owner.told().empty());
  const auto connected_by = [&](uid_t user) {
    const test::TellingProcess process([&] {
      const std::unique_ptr<Service> service = open_as(user);
      const auto* bytes = reinterpret_cast<const std::byte*>(owner.told().data());
      const Secret secret = service->with([](Engine& engine) { return engine.secret(); });
      const auto address = decode_address({bytes, owner.told().size()}, secret);
      if (!address.ok()) return address.status().message();
      const auto connect = [&](Engine& engine) {
        return engine.connect(address.value(), monotonic_after_ns(60'000'000));
      };
      const uint64_t peer = service->with(connect).value();
      const bool is_connected = service->wait(60'000'000, [&](Engine& engine) {
        return engine.peer_state(peer).value() == PeerState::kConnected;
      });
      return std::string(is_connected ? "connected" : "no answer");
    });
    return process.told();
  };
  EXPECT_EQ(connected_by(kOneUser), "connected");
  EXPECT_NE(connected_by(kOtherUser).find("another secret"), std::string::npos);
  for (const uid_t user : {kOneUser, kOtherUser})
    unlink(("/dev/shm/braid-secret-" + std::to_string(user)).c_str());
}

}  // namespace
}  // namespace braid::fabric
