// `braid tebench --pair`: how it ends, and what it refuses.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/support/child.h"

namespace braid::test {
namespace {

using Words = std::vector<std::string>;

Words pair_with(const Words& options) {
  Words words{BRAID_COMMAND, "tebench",
              "--pair",      "--duration",
              "0.1",         "--start_block_size",
              "64K",         "--max_block_size",
              "64K",         "--total_buffer_size",
              "1M"};
  words.insert(words.end(), options.begin(), options.end());
  return words;
}

TEST(Tebench, LeavesNothingInSharedMemory) {
  const std::string own = "mount -t tmpfs -o size=256m none /dev/shm || exit 77; ";
  const std::string list = "; code=$?; ls /dev/shm | grep -v braid-transfer; exit $code";
  Words words{"unshare", "--mount", "sh", "-c", own + "\"$@\"" + list, "sh"};
  const Words pair = pair_with({});
  words.insert(words.end(), pair.begin(), pair.end());
  const ChildResult child = run_child(words);
  if (child.exit_code == 77 || child.errors.starts_with("unshare: "))
    GTEST_SKIP() << "needs root, for a /dev/shm of its own";
  ASSERT_EQ(child.exit_code, 0) << child.errors;
  ASSERT_NE(child.output.find("\n65536 "), std::string::npos) << child.output;
  const std::string last = child.output.substr(child.output.rfind("\n65536 ") + 1);
  EXPECT_EQ(last.find('\n'), last.size() - 1) << child.output;
}

TEST(Tebench, AFileThatCannotBeWrittenIsAnError) {
  // The machine's own is not for root to replace, should this fail.
  std::string full = ::testing::TempDir() + "full_" + std::to_string(getpid());
  if (mknod(full.c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0) full = "/dev/full";
  const ChildResult child = run_child(pair_with({"--json", full}));
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_NE(child.errors.find("cannot write '" + full + "': No space"), std::string::npos)
      << child.errors;
  if (full != "/dev/full") unlink(full.c_str());
}

TEST(Tebench, BlocksHaveBytes) {
  const ChildResult child =
      run_child({"timeout", "10", BRAID_COMMAND, "tebench", "--pair", "--start_block_size", "0"});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_NE(child.errors.find("--start_block_size"), std::string::npos) << child.errors;
}

}  // namespace
}  // namespace braid::test
