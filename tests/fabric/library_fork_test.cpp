// A child process of a program with an open engine: the parent's memory stays the parent's.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "fabric/fake_provider/use.h"
#include "fabric/library_pair.h"

namespace braid::test {
namespace {

class FabricForkTest : public FabricPair {
 protected:
  void SetUp() override {
    fabric::test::use_fake_providers();  // for the tests after it: libfabric starts once
    FabricPair::SetUp();
  }
};

/// Trap 9: after a fork both processes have the same pages, until one of them writes.
TEST_F(FabricForkTest, WhileAChildLivesWritesReachTheParentAlone) {
  std::vector<std::byte> memory(300'000, std::byte{1}), source(memory.size(), std::byte{2});
  const auto target = open_memory(memory);
  const auto from = writer_->add_region(source.data(), source.size()).value();
  const auto immediate = owner_->acquire_immediate().value();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    char byte = 0;
    const bool is_over = read(ends[0], &byte, 1) == 0;  // the parent's writes have ended
    const auto is_old = [](std::byte each) { return each == std::byte{1}; };
    _exit(is_over && std::all_of(memory.begin(), memory.end(), is_old) ? 0 : 1);
  }
  close(ends[0]);
  const auto ticket = writer_->write(from, target, {0, 0, source.size()}, immediate, kLimit);
  EXPECT_EQ(writer_->wait(ticket.value(), kLimit).value(), Fabric::TicketState::kDone);
  const uint64_t expected = Fabric::immediates_of_write(source.size());
  EXPECT_EQ(owner_->wait_count(immediate, expected, kLimit).value(), expected);
  EXPECT_EQ(memory, source);
  close(ends[1]);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "the child's copy has changed";
}

}  // namespace
}  // namespace braid::test
