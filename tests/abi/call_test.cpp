// What a program sees of a C interface when a call goes wrong inside.
#include "abi/call.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

namespace braid::abi {
namespace {

struct Service {
  bool is_ending() const { return ends; }
  bool ends = false;
};
struct Engine {
  Process process;
  Service* service;
};

TEST(AbiCall, NoExceptionLeaves) {
  EXPECT_EQ(guarded([]() -> braid_status { throw std::bad_alloc(); }), BRAID_ERROR_MEMORY);
  EXPECT_STREQ(last_error(), "out of memory");
  EXPECT_EQ(guarded([]() -> braid_status { throw std::runtime_error("a reason"); }),
            BRAID_ERROR_UNAVAILABLE);
  EXPECT_STREQ(last_error(), "a reason");
}

TEST(AbiCall, TheLastErrorIsTheThreadsAndTheDriversNumberIsKept) {
  EXPECT_EQ(report(Status::error("refused", {}, 700), BRAID_ERROR_CUDA), BRAID_ERROR_CUDA);
  std::thread([] {
    EXPECT_STREQ(last_error(), "");
    EXPECT_EQ(report(BRAID_ERROR_ARGUMENT, "another"), BRAID_ERROR_ARGUMENT);
  }).join();
  EXPECT_STREQ(last_error(), "refused");
  EXPECT_EQ(last_cuda_error(), 700);
  EXPECT_EQ(report(Status()), BRAID_OK);
  EXPECT_STREQ(last_error(), "refused");
  EXPECT_EQ(report(BRAID_ERROR_ARGUMENT, "not the driver"), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(last_cuda_error(), 0);
}

// An object of the thread's that ends after whatever braid keeps for the thread.
struct FailsAtItsEnd {
  bool does = false;
  ~FailsAtItsEnd() {
    if (!does) return;
    EXPECT_EQ(report(BRAID_ERROR_CUDA, "words that are too long to be kept in place", 700),
              BRAID_ERROR_CUDA);
    EXPECT_STREQ(last_error(), "the thread is ending: braid keeps no error for it any more");
    EXPECT_EQ(last_cuda_error(), 0);
  }
};

TEST(AbiCall, AThreadMayFailAsItEnds) {
  std::thread([] {
    thread_local FailsAtItsEnd last;
    last.does = true;
    EXPECT_EQ(report(BRAID_ERROR_ARGUMENT, "words that are too long to be kept in place, too"),
              BRAID_ERROR_ARGUMENT);
  }).join();
}

TEST(AbiCall, TheBodyRunsForAnEngineThatIsThere) {
  Service service;
  Engine engine{{}, &service};
  int calls = 0;
  const auto body = [&](Service&) {
    ++calls;
    return BRAID_OK;
  };
  EXPECT_EQ(guarded(&engine, body), BRAID_OK);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(guarded(static_cast<Engine*>(nullptr), body), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(guarded(&engine, body, &calls, static_cast<int*>(nullptr)), BRAID_ERROR_ARGUMENT);
  service.ends = true;
  EXPECT_EQ(guarded(&engine, body), BRAID_ERROR_UNAVAILABLE);
  EXPECT_STREQ(last_error(), "this engine is being closed");
  EXPECT_EQ(calls, 1);
}

TEST(AbiCall, AnEngineIsItsProcesss) {
  Service service;
  const Engine engine{{}, &service};
  EXPECT_EQ(check(&engine), BRAID_OK);
  const pid_t child = fork();
  if (child == 0) {
    const Engine own{{}, &service};
    const bool is_right = check(&engine) == BRAID_ERROR_UNAVAILABLE && check(&own) == BRAID_OK;
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(check(&engine), BRAID_OK);
}

TEST(AbiCall, BuffersThatAreTooSmallSayWhatIsNeeded) {
  const std::string text = "1234567";
  size_t needed = 0;
  char buffer[8] = {};
  EXPECT_EQ(hand_out(text.c_str(), 8, nullptr, 0, &needed), BRAID_OK);
  EXPECT_EQ(needed, 8u);
  EXPECT_EQ(hand_out(text.c_str(), 8, buffer, 7, &needed), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(hand_out(text.c_str(), 8, nullptr, 8, nullptr), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(hand_out(text.c_str(), 8, buffer, 8, nullptr), BRAID_OK);
  EXPECT_EQ(buffer, text);
}

}  // namespace
}  // namespace braid::abi
