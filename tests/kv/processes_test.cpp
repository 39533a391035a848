// A leader without a GPU, and two or four workers in processes of their own, each with a server of
// its own, on libbraid_kv.so: requests that do not fit take turns, and every process verifies every
// byte that they read. Then copies that one worker's driver refuses, and a worker that is killed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <memory>
#include <set>

#include "kv/worker_process.h"
#include "support/eventually.h"

namespace braid::kv::test {
namespace {

constexpr size_t kRequests = 4;
constexpr size_t kBlocksOfRequest = 4;
constexpr int kTurnSteps = 3;
constexpr uint64_t kNeverMs = 3'600'000;

struct Request {
  struct Written {
    BlockNumber block;
    uint64_t word;
  };
  std::vector<Written> written{};
  bool is_done = false;

  std::vector<BlockNumber> blocks() const {
    std::vector<BlockNumber> all;
    for (const Written& each : written) all.push_back(each.block);
    return all;
  }
};

class ProcessesTest : public ::testing::Test {
 protected:
  // `faults` are those of the last rank's server.
  void open(uint32_t workers, uint64_t deadline_ms = kNeverMs, const std::string& faults = {}) {
    auto segments = Rotation::segments(kModel, Rotation::GpuOrder::kBlockFirst, kGpuSlots);
    Rotation::Options options{segments.value(), kGpuSlots, kHostSlots, {}};
    options.remote_ranks = workers;
    options.report_deadline_ms = deadline_ms;
    auto opened = Rotation::open(options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    rotation_ = std::make_unique<Rotation>(std::move(opened).value());
    for (uint32_t rank = 0; rank < workers; ++rank)
      workers_.push_back(
          std::make_unique<WorkerProcess>(rank, rank + 1 == workers ? faults : std::string()));
  }

  // The requests take turns: each runs for some steps, and in each it reads all that it has, and
  // writes one block more.
  void serve() {
    std::deque<Request*> queue;
    for (Request& request : requests_) queue.push_back(&request);
    while (!queue.empty() && !HasFailure()) {
      Request& request = *queue.front();
      queue.pop_front();
      for (int step = 0; step < kTurnSteps && !request.is_done && !HasFailure(); ++step)
        run_step(request);
      preempt(request);
      if (!request.is_done) queue.push_back(&request);
    }
  }

  // Brings the request back first, if it has been away.
  void run_step(Request& request) {
    if (!resume(request)) return;
    rotation_->begin_step();
    std::vector<Access> accesses;
    for (const auto& [block, word] : request.written)
      accesses.push_back({Access::kRead, rotation_->find(block).value().gpu_slot, word});
    if (request.written.size() == kBlocksOfRequest) {
      request.is_done = true;
    } else {
      const auto block = rotation_->create();
      ASSERT_TRUE(block.ok()) << block.status().message();
      request.written.push_back({block.value(), ++words_});
      accesses.push_back({Access::kWrite, rotation_->find(block.value()).value().gpu_slot, words_});
      ASSERT_TRUE(rotation_->seal({&block.value(), 1}).ok());
    }
    running_ = &request;
    exchange(accesses);
  }

  bool resume(Request& request) {
    const std::vector<BlockNumber> blocks = request.blocks();
    if (running_ == &request) return true;
    if (blocks.empty()) return true;
    const auto submitted = rotation_->submit({.load = blocks});
    EXPECT_TRUE(submitted.failure.ok()) << submitted.failure.message();
    const auto used = rotation_->begin_use(blocks);
    EXPECT_TRUE(used.ok()) << used.words();
    return used.ok();
  }

  // Its blocks leave, but for those of a request that has ended.
  void preempt(Request& request) {
    if (running_ != &request) return;
    running_ = nullptr;
    const std::vector<BlockNumber> blocks = request.blocks();
    EXPECT_TRUE(rotation_->end_use(blocks).ok());
    if (request.is_done) {
      EXPECT_TRUE(rotation_->release(blocks).ok());
      request.written.clear();
      return;
    }
    EXPECT_TRUE(braid::test::eventually([&] {
      const auto submitted = rotation_->submit({.evict = blocks});
      EXPECT_TRUE(submitted.failure.ok()) << submitted.failure.message();
      exchange({});
      return HasFailure() || std::ranges::all_of(blocks, [&](BlockNumber block) {
               return rotation_->find(block).value().state == Rotation::BlockState::kHostOnly;
             });
    })) << "its blocks do not leave";
    check_host(request);
  }

  // Each process looks at its own host copies.
  void check_host(const Request& request) {
    std::vector<Access> accesses;
    for (const auto& [block, word] : request.written)
      accesses.push_back({Access::kReadOnHost, rotation_->find(block).value().host_slot, word});
    exchange(accesses);
  }

  void send_commands(const std::vector<Access>& accesses) {
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      const auto commands = rotation_->take_commands(rank);
      ASSERT_TRUE(commands.ok()) << commands.status().message();
      const Rotation::Bytes bytes = commands.value();
      ASSERT_TRUE(workers_[rank]->begin({{bytes.data(), bytes.data() + bytes.size()}, accesses}));
    }
  }

  // Commands and what the step does go out, reports and verdicts come back. Whoever read a block
  // that was not there says so in the same reply.
  void exchange(const std::vector<Access>& accesses) {
    send_commands(accesses);
    ASSERT_TRUE(rotation_->end_step().ok());
    bool all_right = true;
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      const auto reply = workers_[rank]->reply();
      ASSERT_TRUE(reply) << "rank " << rank << " is gone";
      ASSERT_EQ(reply->error, "");
      ASSERT_EQ(reply->right.size(), accesses.size());
      all_right &= std::ranges::all_of(reply->right, [](uint8_t right) { return right != 0; });
      const Status given = rotation_->give_report(rank, reply->report);
      ASSERT_TRUE(given.ok()) << given.message();
    }
    const auto polled = rotation_->poll();
    ASSERT_TRUE(polled.ok()) << polled.status().message();
    if (!polled.value().failed.empty()) see_failures(polled.value());
    EXPECT_TRUE(all_right || !polled.value().failed.empty()) << "a block was believed good";
  }

  // What was computed from blocks that did not come is computed again: the whole request.
  void see_failures(const Rotation::Report& report) {
    failures_ += report.failed.size();
    causes_.insert(report.cause);
    const auto is_there = [&](BlockNumber block) {
      return rotation_->find(block).value().state == Rotation::BlockState::kSealed;
    };
    if (running_ == nullptr || std::ranges::all_of(report.failed, is_there)) return;
    ++loads_failed_;
    EXPECT_TRUE(rotation_->end_use(running_->blocks()).ok());
    EXPECT_TRUE(rotation_->release(running_->blocks()).ok());
    *running_ = {};
    running_ = nullptr;
  }

  void expect_all_served() {
    EXPECT_TRUE(std::ranges::all_of(requests_, &Request::is_done));
    exchange({});
    const auto statistics = rotation_->statistics().value();
    EXPECT_EQ(statistics.gpu_slots_free, kGpuSlots);
    EXPECT_EQ(statistics.host_slots_free, kHostSlots);
  }

  std::unique_ptr<Rotation> rotation_;
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  std::array<Request, kRequests> requests_;
  Request* running_ = nullptr;
  uint64_t words_ = 0;
  uint64_t failures_ = 0;
  uint64_t loads_failed_ = 0;
  std::set<std::string> causes_;
};

TEST_F(ProcessesTest, TwoServeRequestsThatDoNotFit) {
  open(2);
  serve();
  expect_all_served();
  EXPECT_EQ(failures_, 0u);
}

TEST_F(ProcessesTest, FourServeRequestsThatDoNotFit) {
  open(4);
  serve();
  expect_all_served();
  EXPECT_EQ(failures_, 0u);
}

// Copies down and up, while others of the same step go on, and on the other ranks all.
TEST_F(ProcessesTest, WhatOneWorkersDriverRefusesIsTold) {
  if (std::getenv("BRAID_TEST_DRIVER") != nullptr)
    GTEST_SKIP() << "waived: it is the emulated server that refuses";
  std::string calls;
  for (const int nth : {2, 3, 7, 8, 9, 14, 20, 21, 30})
    calls += std::string(calls.empty() ? "" : ", ") +
             R"({"name": "cuMemcpyBatchAsync", "error": "CUDA_ERROR_INVALID_VALUE", "nth": )" +
             std::to_string(nth) + "}";
  open(3, kNeverMs, R"({"calls": [)" + calls + "]}");
  serve();
  expect_all_served();
  EXPECT_GE(failures_, 9u);
  EXPECT_GT(loads_failed_, 0u);
  for (const std::string& cause : causes_) {
    EXPECT_TRUE(cause.starts_with("rank 2: ")) << cause;
    EXPECT_NE(cause.find("INVALID_VALUE"), std::string::npos) << cause;
  }
}

TEST_F(ProcessesTest, AWorkerThatIsKilledEndsTheGroup) {
  open(2, 300);
  for (int step = 0; step < 3; ++step) run_step(requests_[0]);
  preempt(requests_[0]);
  run_step(requests_[1]);
  const std::vector<BlockNumber> cold = requests_[0].blocks(), hot = requests_[1].blocks();
  EXPECT_TRUE(rotation_->submit({.load = cold}).failure.ok());
  EXPECT_TRUE(rotation_->begin_use(cold).ok());
  rotation_->begin_step();
  workers_[1]->stop();
  send_commands({});
  workers_[1]->end(SIGKILL);
  EXPECT_TRUE(rotation_->end_step().ok());
  EXPECT_FALSE(workers_[1]->reply());
  EXPECT_TRUE(rotation_->give_report(0, workers_[0]->reply()->report).ok());
  Status failure;
  EXPECT_TRUE(braid::test::eventually([&] {
    failure = rotation_->poll().status();
    return !failure.ok();
  }));
  EXPECT_EQ(failure.code(), BRAID_ERROR_PEER);
  EXPECT_NE(failure.message().find("rank 1 of the group has failed"), std::string::npos)
      << failure.message();
  for (const auto& blocks : {cold, hot})
    for (const BlockNumber block : blocks)
      EXPECT_EQ(rotation_->find(block).value().state, Rotation::BlockState::kLost);
  EXPECT_FALSE(rotation_->submit({.load = cold}).failure.ok());
  EXPECT_FALSE(rotation_->take_commands(0).ok());
  EXPECT_TRUE(rotation_->end_use(cold).ok());
  EXPECT_TRUE(rotation_->release(cold).ok());
}

}  // namespace
}  // namespace braid::kv::test
