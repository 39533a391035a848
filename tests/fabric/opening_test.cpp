// Processes that exit while a thread of theirs opens something.
#include "fabric/ofi/opening.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "support/in_time.h"

namespace braid::fabric::ofi {
namespace {

int told = -1;

void tell(char word) { (void)!write(told, &word, 1); }

/// What a child process that runs `body` and exits then has told.
template <typename Body>
std::string told_by_a_process(const Body& body) {
  std::array<int, 2> pipe_ends{};
  EXPECT_EQ(pipe(pipe_ends.data()), 0);
  const pid_t process = fork();
  if (process == 0) {
    told = pipe_ends[1];
    body();
    std::exit(0);
  }
  close(pipe_ends[1]);
  std::string words;
  for (char word = 0; read(pipe_ends[0], &word, 1) == 1;) words += word;
  close(pipe_ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return words;
}

TEST(OpeningTest, TheExitWaitsForIt) {
  EXPECT_EQ(told_by_a_process([] {
              std::atomic<bool>* const has_begun = new std::atomic<bool>(false);  // owner: nobody
              std::thread([has_begun] {
                const Opening opening;
                *has_begun = opening.may_go_on();
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                tell('o');
              }).detach();
              while (!*has_begun) std::this_thread::yield();
            }),
            "o");
}

TEST(OpeningTest, NoneMayGoOnOnceTheProcessExits) {
  EXPECT_EQ(told_by_a_process([] {
              std::atexit([] { tell(Opening().may_go_on() ? 'y' : 'n'); });
              tell(Opening().may_go_on() ? 'y' : 'n');
            }),
            "yn");
}

/// Otherwise it would wait for 3 s.
TEST(OpeningTest, AChildDoesNotWaitForWhatItsParentOpens) {
  const Opening opening;
  EXPECT_TRUE(braid::test::is_once_within(std::chrono::seconds(2), [] {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(told_by_a_process([] { tell('c'); }), "c");
    return std::chrono::steady_clock::now() - begun;
  }));
}

}  // namespace
}  // namespace braid::fabric::ofi
