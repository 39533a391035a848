// The table by which processes of a host know of each other.
#include "multipath/process_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "support/eventually.h"

namespace braid::multipath {
namespace {

using std::chrono::milliseconds;

class ProcessTableTest : public ::testing::Test {
 protected:
  ~ProcessTableTest() override { shm_unlink(name_.c_str()); }

  std::unique_ptr<ProcessTable> open() {
    auto table = ProcessTable::open(name_);
    EXPECT_TRUE(table.ok()) << table.status().message();
    return table.ok() ? std::move(table).value() : nullptr;
  }
  size_t alive(const ProcessTable& table) {
    size_t count = 0;
    for (size_t row = 0; row < ProcessTable::kRows; ++row) count += table.is_alive(row) ? 1 : 0;
    return count;
  }
  const std::string name_ = "/braid-test-" + std::to_string(getpid());
};

TEST_F(ProcessTableTest, EachHasARowThatOthersSee) {
  const auto one = open(), other = open();
  ProcessRow* row = one->claim("one");
  ASSERT_NE(row, nullptr);
  ASSERT_NE(other->claim("a program with a long name"), nullptr);
  row->gpus[3].key = 77;
  EXPECT_EQ(alive(*one), 2u);
  EXPECT_EQ(alive(*other), 2u);
  EXPECT_STREQ(other->row(0).name, "one");
  EXPECT_EQ(other->pid(0), getpid());
  EXPECT_EQ(other->row(0).gpus[3].key, 77u);
  EXPECT_STREQ(one->row(1).name, "a program with ");
}

TEST_F(ProcessTableTest, ARowIsGivenBack) {
  const auto watcher = open();
  {
    const auto one = open();
    ASSERT_NE(one->claim("one"), nullptr);
    EXPECT_EQ(alive(*watcher), 1u);
  }
  EXPECT_EQ(alive(*watcher), 0u);
  EXPECT_EQ(watcher->pid(0), 0);
}

// Its child lives on, with what it had open.
TEST_F(ProcessTableTest, TheRowOfAProcessThatLeftAChildIsFree) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto table = ProcessTable::open(name_);
    if (!table.ok() || table.value()->claim("parent") == nullptr) _exit(1);
    const pid_t child = fork();
    if (child == 0) pause();
    _exit(write(pipes[1], &child, sizeof child) == sizeof child ? 0 : 1);
  }
  pid_t child = 0;
  ASSERT_EQ(read(pipes[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  int status = 0;
  waitpid(parent, &status, 0);
  const auto watcher = open();
  EXPECT_EQ(watcher->pid(0), parent);
  EXPECT_TRUE(test::eventually([&] { return alive(*watcher) == 0; })) << "its child holds its row";
  kill(child, SIGKILL);
}

// However it dies: nothing of its own runs then.
TEST_F(ProcessTableTest, TheRowOfAProcessThatWasKilledIsFree) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto table = ProcessTable::open(name_);
    ProcessRow* row = table.ok() ? table.value()->claim("child") : nullptr;
    if (row != nullptr) row->gpus[0].key = 5;
    const char said = row != nullptr ? 'y' : 'n';
    if (write(pipes[1], &said, 1) == 1) pause();
    _exit(1);
  }
  char said = 0;
  ASSERT_EQ(read(pipes[0], &said, 1), 1);
  ASSERT_EQ(said, 'y');
  const auto table = open();
  EXPECT_EQ(alive(*table), 1u);
  EXPECT_EQ(table->pid(0), child);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(alive(*table), 0u);
  ProcessRow* row = table->claim("next");
  EXPECT_EQ(row, &table->row(0));
  EXPECT_EQ(row->gpus[0].key, 0u);
  close(pipes[0]);
  close(pipes[1]);
}

TEST_F(ProcessTableTest, WithEveryRowTakenThereIsNone) {
  std::vector<std::unique_ptr<ProcessTable>> all;
  for (size_t i = 0; i < ProcessTable::kRows; ++i) {
    all.push_back(open());
    ASSERT_NE(all.back()->claim("x"), nullptr) << i;
  }
  EXPECT_EQ(open()->claim("x"), nullptr);
  all[7].reset();
  const auto last = open();
  EXPECT_EQ(last->claim("x"), &last->row(7));
}

TEST_F(ProcessTableTest, OneHasTheTurn) {
  const auto one = open(), other = open();
  ASSERT_TRUE(one->lock_opening(milliseconds(0)));
  EXPECT_FALSE(other->lock_opening(milliseconds(20)));
  one->unlock_opening();
  EXPECT_TRUE(other->lock_opening(milliseconds(0)));
}

TEST_F(ProcessTableTest, AFileThatOthersMayReadIsNotUsed) {
  const int file = shm_open(name_.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(fchmod(file, 0644), 0);
  const auto table = ProcessTable::open(name_);
  ASSERT_FALSE(table.ok());
  EXPECT_NE(table.status().message().find(name_), std::string::npos);
  close(file);
}

TEST_F(ProcessTableTest, AnotherVersionsFileIsNotUsed) {
  const int file = shm_open(name_.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(write(file, "anything", 8), 8);
  close(file);
  const auto table = ProcessTable::open(name_);
  ASSERT_FALSE(table.ok());
  EXPECT_NE(table.status().message().find("another version"), std::string::npos);
}

TEST_F(ProcessTableTest, QuestionsAreAnswered) {
  const auto table = open();
  ProcessRow& row = *table->claim("one");
  EXPECT_EQ(ask(row, milliseconds(20)), std::nullopt) << "nobody answers";
  std::thread owner([&row] {
    for (uint32_t asked = row.answered; asked < 3; asked = row.asked) {
      if (asked != row.answered) answer(row, asked, "number " + std::to_string(asked));
      wait_for_question(row, asked, milliseconds(0));
    }
    answer(row, row.asked, std::string(2 * ProcessRow::kAnswerBytes, 'x'));
  });
  EXPECT_EQ(ask(row, milliseconds(20'000)), "number 2");
  EXPECT_EQ(ask(row, milliseconds(20'000)), std::string(ProcessRow::kAnswerBytes - 1, 'x'));
  owner.join();
}

}  // namespace
}  // namespace braid::multipath
