// A program that has closed its standard streams writes into none of braid's files, and reads none.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "host/shared_pages.h"
#include "host/shared_table.h"

namespace braid {
namespace {

bool is_closed(int file) { return fcntl(file, F_GETFD) == -1; }

// The next file that is opened gets this number.
class WithoutStandardInput : public ::testing::Test {
 protected:
  WithoutStandardInput() : kept_(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) {
    close(STDIN_FILENO);
  }
  ~WithoutStandardInput() override {
    if (kept_ < 0) return;
    dup2(kept_, STDIN_FILENO);
    close(kept_);
  }

 private:
  const int kept_;
};

TEST_F(WithoutStandardInput, ATableOfProcessesDoesNotTakeItsPlace) {
  const std::string name = "/braid-test-" + std::to_string(getpid());
  const auto table = SharedTable::open(name, 1, 64);
  shm_unlink(name.c_str());
  ASSERT_TRUE(table.ok()) << table.status().message();
  EXPECT_TRUE(is_closed(STDIN_FILENO));
  EXPECT_TRUE(table.value()->try_lock()) << "the table is open all the same";
}

TEST_F(WithoutStandardInput, MemoryThatPeersMapDoesNotTakeItsPlace) {
  const auto pages = make_shared_pages(4096, {.name = "test"});
  ASSERT_TRUE(pages.ok()) << pages.status().message();
  EXPECT_TRUE(is_closed(STDIN_FILENO));
  EXPECT_TRUE(pages.value().file.is_open());
}

}  // namespace
}  // namespace braid
