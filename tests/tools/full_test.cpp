// Where /dev/shm or a folder is full, the error says which, how much is needed, and what to do.
#include <gtest/gtest.h>

#include "tests/support/child.h"

namespace braid::test {
namespace {

/// What the command says where /dev/shm and FULL, a folder, have 4 KiB each, all of them taken.
ChildResult run_on_full_host(const std::string& command) {
  const std::string script =
      "full=$(mktemp -d); for each in /dev/shm $full; do mount -t tmpfs -o size=4k none $each || "
      "exit 77; head -c 4096 /dev/zero > $each/taken; done; cd $full; " +
      command + "; code=$?; cd /; umount $full; rmdir $full; exit $code";
  return run_child({"unshare", "--mount", "sh", "-c", script, "sh", BRAID_COMMAND});
}

void expect_error(const std::string& command, const std::vector<std::string>& parts) {
  const ChildResult child = run_on_full_host(command);
  if (child.exit_code == 77 || child.errors.starts_with("unshare: "))
    GTEST_SKIP() << "needs root, to mount a /dev/shm of its own";
  EXPECT_EQ(child.exit_code, 1) << child.output;
  for (const std::string& part : parts)
    EXPECT_NE(child.errors.find(part), std::string::npos) << part << " in: " << child.errors;
}

TEST(Full, AFileForResults) {
  expect_error(
      "\"$1\" tebench --pair --duration 0.1 --max_block_size 4K --total_buffer_size 1M --json here",
      {"cannot write 'here': No space left", "The file needs ", "has 0 free", "another folder"});
}

TEST(Full, SharedMemoryOfTheProcessTable) {
  expect_error("\"$1\" ps", {"/dev/shm/braid-", "needs ", "--shm-size", "BRAID_PROCESSES=none"});
}

TEST(Full, SharedMemoryOfRails) {
  expect_error("\"$1\" serve --provider shm --seconds 1",
               {"/dev/shm: 0 MiB free", "for each CPU", " MiB here", "--shm-size"});
  expect_error("\"$1\" fabric bench --provider shm --sizes 4K",
               {"/dev/shm: 0 MiB free", "for each CPU", " MiB here", "--shm-size"});
}

}  // namespace
}  // namespace braid::test
