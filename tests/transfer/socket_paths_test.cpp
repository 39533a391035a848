// Sockets of a folder, by which engines of a host have names.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "transfer/directory/socket.h"
#include "transfer/failure.h"

namespace braid::transfer {
namespace {

namespace fs = std::filesystem;

/// In a folder of the test's own.
class TransferPaths : public testing::Test {
 protected:
  TransferPaths() { fs::create_directories(folder); }
  ~TransferPaths() override { fs::remove_all(folder); }

  const std::string folder = testing::TempDir() + "/braid-paths-" + std::to_string(getpid());
  const std::string path = folder + "/name";
};

TEST_F(TransferPaths, OfManyThatWantANameOneHasIt) {
  for (int turn = 0; turn < 200; ++turn) {
    { const auto left = listen_at_path(path); }  // by a process that has ended
    std::atomic<int> ready = 0, have = 0, done = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (++ready; ready < 4;) std::this_thread::yield();
        const auto listener = listen_at_path(path);
        have += listener.ok();
        for (++done; done < 4;) std::this_thread::yield();
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(have, 1) << turn;
  }
}

/// Names of processes that were killed would stay for ever otherwise.
TEST_F(TransferPaths, ANewNameRemovesThoseThatEndedProcessesHaveLeft) {
  const auto leave = [&](const std::string& name) {
    Descriptor killed = listen_at_path(folder + "/" + name).value();  // closed, and not removed
  };
  leave("left");
  const Descriptor live = listen_at_path(folder + "/live").value();
  EXPECT_FALSE(fs::exists(folder + "/left"));
  leave("left");
  leave(".no-name");
  std::ofstream(folder + "/file") << "somebody's";
  const Descriptor fresh = listen_at_path(folder + "/fresh").value();
  EXPECT_FALSE(fs::exists(folder + "/left"));
  for (const char* kept : {"live", "fresh", "file", ".no-name"})
    EXPECT_TRUE(fs::exists(folder + "/" + kept)) << kept;
  EXPECT_TRUE(is_listened_at(folder + "/live").value());
}

/// A process that may open no more descriptors cannot see whether somebody listens.
TEST_F(TransferPaths, ALiveSocketIsKeptByAProcessWithoutDescriptors) {
  const Descriptor live = listen_at_path(path).value();
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const int next = dup(live.get());  // the lowest number that is free
  close(next);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(next) + 1;  // for the folder, and none for a socket
  setrlimit(RLIMIT_NOFILE, &few);
  const auto taken = listen_at_path(path);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(taken.ok());
  EXPECT_EQ(cause_of(taken.status()), Cause::kTooMuch) << taken.status().message();
  EXPECT_TRUE(connect_to_path(path, monotonic_ns() + 1'000'000'000).ok()) << "it is gone";
}

TEST_F(TransferPaths, OneThatTakesNoQuestionIsWaitedForUntilTheLimit) {
  const Descriptor listener = listen_at_path(path).value();
  ASSERT_EQ(listen(listener.get(), 0), 0);
  // It is tried once, however late it is then.
  const auto connect_by = [&](uint64_t limit_ns) {
    return connect_to_path(path, monotonic_ns() + limit_ns);
  };
  std::vector<Descriptor> before;
  auto next = connect_by(50'000'000);
  for (; next.ok() && before.size() < 10; next = connect_by(50'000'000))
    before.push_back(std::move(next).value());
  EXPECT_FALSE(next.ok()) << "its queue has an end";
  EXPECT_TRUE(is_listened_at(path).value()) << "it is only behind";
  const Descriptor taken(accept(listener.get(), nullptr, nullptr));
  EXPECT_TRUE(connect_by(0).ok());
}

}  // namespace
}  // namespace braid::transfer
