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
      run_child({"timeout", "60", BRAID_COMMAND, "tebench", "--pair", "--start_block_size", "0"});
  EXPECT_EQ(child.exit_code, 1);
  EXPECT_NE(child.errors.find("--start_block_size"), std::string::npos) << child.errors;
}

void expect_error(const Words& options, const Words& parts) {
  Words words{"timeout", "60", BRAID_COMMAND, "tebench", "--pair", "--duration", "0.1"};
  words.insert(words.end(), options.begin(), options.end());
  const ChildResult child = run_child(words);
  EXPECT_EQ(child.exit_code, 1) << options.front() << ": " << child.output;
  EXPECT_EQ(child.output, "") << options.front();
  EXPECT_LT(child.errors.size(), 300u) << "nobody reads that: " << child.errors;
  for (const std::string& part : parts)
    EXPECT_NE(child.errors.find(part), std::string::npos) << part << " in: " << child.errors;
}

TEST(Tebench, WhereNothingCanBeMeasuredTheFlagsAreNamed) {
  expect_error({"--start_num_threads", "4"}, {"--start_num_threads 4", "--max_num_threads 1"});
  expect_error({"--start_block_size", "2M", "--max_block_size", "1M"},
               {"--start_block_size 2097152", "--max_block_size 1048576"});
  expect_error({"--start_batch_size", "4"}, {"--start_batch_size 4", "--max_batch_size 1"});
  expect_error({"--pattern", "r1-w8a8", "--start_num_threads", "2"}, {"--max_num_threads 1"});
  expect_error({"--total_buffer_size", "64K", "--start_block_size", "1M"},
               {"--start_block_size 1048576", "--total_buffer_size"});
  expect_error({"--total_buffer_size", "64K", "--qos_classes", "a:17:1:1"},
               {"17 threads", "--total_buffer_size"});
}

TEST(Tebench, NumbersThatMeanNothingAreRefused) {
  for (const char* seconds : {"0", "-1", "nan", "inf"})
    expect_error({"--duration", seconds}, {"--duration"});
  expect_error({"--warm_up", "-1"}, {"--warm_up"});
  expect_error({"--total_buffer_size", "-1"}, {"--total_buffer_size", "'-1' is not 0 or more"});
  expect_error({"--start_num_threads", "0"}, {"--start_num_threads", "not a number above 0"});
  expect_error({"--deadline_us", "-1"}, {"--deadline_us"});
  expect_error({"--seg_type_mix"}, {"--seg_type_mix", "use --seg_type"});
  expect_error({"--plot", "/nonexistent/plot.svg"}, {"cannot write '/nonexistent/plot.svg'"});
}

TEST(Tebench, WhatEndsBehindItsDeadlineIsLate) {
  const ChildResult child =
      run_child({BRAID_COMMAND, "tebench", "--pair", "--duration", "0.5", "--warm_up", "0",
                 "--total_buffer_size", "8M", "--start_block_size", "1M", "--max_block_size", "1M",
                 "--deadline_us", "50", "--json", "/dev/stdout"});
  ASSERT_EQ(child.exit_code, 0) << child.errors;
  const auto rows = nlohmann::json::parse(child.output.substr(child.output.rfind("\n[")));
  EXPECT_LE(rows[0]["p999_tx_us"], 50) << rows;
  EXPECT_GT(rows[0]["late"], 0) << rows;
}

}  // namespace
}  // namespace braid::test
