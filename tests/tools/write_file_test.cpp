// Where results go: whoever reads a file sees the old one or the new one, and nothing but a regular
// file is replaced.
#include "tools/write_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace braid::tools {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

class WriteFile : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  const fs::path folder_ =
      fs::path(::testing::TempDir()) / ("write_file_" + std::to_string(getpid()));
  const std::string file_ = folder_ / "file.json";
};

TEST_F(WriteFile, AReaderOfTheOldFileSeesItWhole) {
  ASSERT_TRUE(write_file(file_, "old text").ok());
  ASSERT_EQ(chmod(file_.c_str(), 0640), 0);
  std::ifstream reader(file_);
  std::string word;
  reader >> word;
  ASSERT_TRUE(write_file(file_, "new").ok());
  reader >> word;
  EXPECT_EQ(word, "text");
  EXPECT_EQ(text_of(file_), "new");
  struct stat facts {};
  ASSERT_EQ(stat(file_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0640u) << "who may read it stays";
  EXPECT_EQ(files(), 1u) << "no draft is left";
}

TEST_F(WriteFile, ALinkStays) {
  std::ofstream(file_) << "old";
  fs::create_symlink("file.json", folder_ / "link");
  fs::create_symlink("later.json", folder_ / "dangling");
  for (const char* link : {"link", "dangling"}) {
    ASSERT_TRUE(write_file(folder_ / link, "new").ok());
    EXPECT_TRUE(fs::is_symlink(folder_ / link)) << link;
    EXPECT_EQ(text_of(folder_ / link), "new");
  }
}

TEST_F(WriteFile, WhatIsNoRegularFileIsWrittenTo) {
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const pid_t reader = fork();
  if (reader == 0) _exit(text_of(fifo) == "text" ? 0 : 1);
  ASSERT_TRUE(write_file(fifo, "text").ok());
  int status = 1;
  waitpid(reader, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(fs::is_fifo(fifo));
}

TEST_F(WriteFile, ToTheFileOfStandardOutputIsBehindWhatStandsThere) {
  const pid_t child = fork();
  if (child == 0) {
    const bool is_open = std::freopen(file_.c_str(), "w", stdout) != nullptr;
    std::printf("before ");
    fs::create_symlink("/proc/self/fd/1", folder_ / "stdout");  // as /dev/stdout
    const bool is_written = write_file(folder_ / "stdout", "json ").ok();
    std::printf("after");
    std::fflush(stdout);
    _exit(is_open && is_written ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(text_of(file_), "before json after");
}

TEST_F(WriteFile, WhatCannotBeWrittenIsSaid) {
  const auto message = [](const std::string& path) { return write_file(path, "x").message(); };
  // The machine's own is not for root to replace, should this fail.
  std::string full = folder_ / "full";
  if (mknod(full.c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0) full = "/dev/full";
  EXPECT_TRUE(message(full).starts_with("cannot write '" + full + "': No space left"))
      << message(full);
  // The folder of a device is not what is full.
  EXPECT_EQ(message(full).find("free"), std::string::npos) << message(full);
  EXPECT_TRUE(message("/no/folder/x").starts_with("cannot write '/no/folder/x': No such file"));
  EXPECT_TRUE(message(folder_).starts_with("cannot write '" + folder_.string() + "': Is a dir"));
}

}  // namespace
}  // namespace braid::tools
