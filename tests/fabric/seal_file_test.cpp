// What the file of a secret may be: never something that has no end, or that nobody writes to.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "fabric/seal.h"

namespace braid::fabric {
namespace {

namespace fs = std::filesystem;

class SecretFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "secret_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  static void expect_refused(const std::string& path, const std::string& part) {
    const auto secret = Secret::of_file(path);
    ASSERT_FALSE(secret.ok());
    EXPECT_NE(secret.status().message().find(part), std::string::npos) << secret.status().message();
  }

  fs::path folder_;
};

TEST_F(SecretFile, IsARegularFile) {
  alarm(10);  // to wait for a FIFO's writer would take for ever
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  expect_refused(path("fifo"), "is no regular file");
  expect_refused(folder_.string(), "is no regular file");
  expect_refused("/dev/zero", "is no regular file");
  expect_refused(path("nothing"), "cannot be read");
  alarm(0);
}

TEST_F(SecretFile, IsReadWhereItsOwnerAloneMayReadIt) {
  std::ofstream(path("key")) << std::string(64, 'k') << "\n";
  ASSERT_EQ(chmod(path("key").c_str(), 0644), 0);
  expect_refused(path("key"), "others may read");
  ASSERT_EQ(chmod(path("key").c_str(), 0600), 0);
  EXPECT_TRUE(Secret::of_file(path("key")).ok());
}

}  // namespace
}  // namespace braid::fabric
