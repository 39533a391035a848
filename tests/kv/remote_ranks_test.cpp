// What a leader and its workers rely on: blocks that come back on every rank, messages that are
// refused instead of misread, failures that leave each block where its good bytes are, and a group
// that ends with any of its ranks.
#include <array>

#include "kv/rig.h"
#include "support/eventually.h"
#include "support/gate.h"

namespace braid::kv::test {
namespace {

class RemoteRanksTest : public KvTest {
 protected:
  RemoteRanksTest() { gpus_needed = 3; }

  void open_three() { open({.ranks = 1, .remote_ranks = 2}); }

  std::vector<std::byte> take_commands(size_t rank) {
    const auto taken = rotation().take_commands(rank);
    EXPECT_TRUE(taken.ok()) << taken.status().message();
    return {taken.value().begin(), taken.value().end()};
  }
  // That of a step without anything to do.
  std::vector<std::byte> commands_of_a_step(size_t rank) {
    rotation().begin_step();
    return take_commands(rank);
  }
  std::string refusal(size_t remote, const std::vector<std::byte>& commands) {
    return worker(remote).apply(commands).status().message();
  }
};

bool has(const std::string& words, const std::string& part) {
  return words.find(part) != std::string::npos;
}

TEST_F(RemoteRanksTest, ABlockComesBackOnEveryRank) {
  open_three();
  make_a_round_trip();
}

TEST_F(RemoteRanksTest, ACopyHasLandedOnceEveryRankHasReportedIt) {
  open({.slots = {1, 8}, .ranks = 1, .remote_ranks = 2});
  const BlockId id = unused_block(1);
  EXPECT_TRUE(rotation().submit({.evict = {&id, 1}}).failure.ok());
  std::array<Sent, 2> sent{{{take_commands(1), {}}, {take_commands(2), {}}}};
  for (const size_t remote : {0, 1}) {
    rotation().wait();
    EXPECT_TRUE(rotation().poll().synced.empty());
    EXPECT_EQ(state(id), BlockState::kSyncing);
    EXPECT_EQ(rotation().table().gpu().free_count(), 0u) << "a rank still reads the slot";
    EXPECT_TRUE(carry_out(remote, sent[remote]).ok());
    worker(remote).wait();
    EXPECT_TRUE(give_report(remote).ok());
  }
  EXPECT_EQ(rotation().poll().synced, std::vector{id});
  EXPECT_EQ(state(id), BlockState::kHostOnly);
  EXPECT_EQ(rotation().table().gpu().free_count(), 1u);
  expect_on_host(id, 1);
}

// The worker's compute stream is held meanwhile: a call that waited for it would not return.
TEST_F(RemoteRanksTest, NoCallOfAWorkerWaits) {
  open({.slots = {2, 8}, .ranks = 0, .remote_ranks = 1});
  const BlockId cold = host_only_block(1);
  const std::array<BlockId, 2> hot{sealed_block(2), sealed_block(2)};
  rotation().submit({});
  settle();
  braid::test::Gate gate(driver());
  gate.hold(compute(0));
  read_in_a_step(hot, 2);
  for (const BlockId id : hot) (void)rotation().end_use(id);
  EXPECT_EQ(rotation().submit({.evict = hot, .load = {&cold, 1}}).loads_left, 0u);
  EXPECT_EQ(rotation().begin_use(cold), Refusal::kNone);
  read_in_a_step(cold, 1);
  let_remote_ranks_work();
  EXPECT_TRUE(rotation().poll().loaded.empty());
  EXPECT_EQ(rotation().table().gpu().free_count(), 0u) << "a step still reads the slots";
  gate.open();
  settle();
  EXPECT_EQ(state(cold), BlockState::kSynced);
}

// ---- Messages ----

TEST_F(RemoteRanksTest, CommandsAreCarriedOutOnceAndInOrder) {
  open_three();
  const BlockId id = host_only_block(5);
  EXPECT_TRUE(rotation().submit({.load = {&id, 1}}).failure.ok());
  EXPECT_EQ(rotation().begin_use(id), Refusal::kNone);
  std::array<std::vector<Sent>, 2> sent;
  for (int step = 0; step < 3; ++step) {
    rotation().begin_step();
    for (const size_t remote : {0, 1}) sent[remote].push_back({take_commands(1 + remote), {}});
    EXPECT_TRUE(rotation().end_step().ok());
  }
  EXPECT_TRUE(has(refusal(0, sent[0][1].commands), "some are missing"));
  EXPECT_TRUE(has(refusal(0, sent[1][0].commands), "for rank 2 came to the worker of rank 1"));
  for (const size_t remote : {0, 1}) {
    EXPECT_TRUE(carry_out(remote, sent[remote][0]).ok());
    EXPECT_TRUE(has(refusal(remote, sent[remote][0].commands), "they have been carried out"));
    EXPECT_TRUE(has(refusal(remote, sent[remote][2].commands), "some are missing"));
    for (const size_t step : {1, 2}) EXPECT_TRUE(carry_out(remote, sent[remote][step]).ok());
  }
  settle();
  read_in_a_step(id, 5);
}

TEST_F(RemoteRanksTest, BytesThatWereCutOrChangedAreRefused) {
  open({.ranks = 0, .remote_ranks = 1});
  const BlockId id = unused_block(6);
  EXPECT_TRUE(rotation().submit({.evict = {&id, 1}}).failure.ok());
  const std::vector<std::byte> commands = take_commands(0);
  for (size_t size = 0; size < commands.size(); ++size)
    EXPECT_FALSE(refusal(0, {commands.begin(), commands.begin() + size}).empty()) << size;
  for (size_t at = 0; at < commands.size(); ++at) {
    std::vector<std::byte> changed = commands;
    changed[at] ^= std::byte{0x10};
    EXPECT_FALSE(refusal(0, changed).empty()) << at;
  }
  std::vector<std::byte> two = commands;
  two.insert(two.end(), commands.begin(), commands.end());
  EXPECT_TRUE(has(refusal(0, two), "bytes came as"));
  EXPECT_TRUE(carry_out(0, {commands, {}}).ok()) << "none of these has changed anything";
  settle();
  expect_on_host(id, 6);
}

TEST_F(RemoteRanksTest, ReportsThatAreOldAreIgnoredAndWrongOnesRefused) {
  open({.ranks = 0, .remote_ranks = 2});
  const auto report_of = [&](size_t remote) {
    const auto bytes = worker(remote).report();
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  const std::vector<std::byte> before = report_of(0);
  const BlockId id = unused_block(1);
  const std::vector<std::byte> old = report_of(0);
  EXPECT_TRUE(rotation().submit({.evict = {&id, 1}}).failure.ok());
  for (const size_t remote : {0, 1}) {
    EXPECT_TRUE(carry_out(remote, {take_commands(remote), {}}).ok());
    worker(remote).wait();
    EXPECT_TRUE(give_report(remote).ok());
  }
  for (const auto& late : {before, old}) EXPECT_TRUE(rotation().give_report(0, late).ok());
  EXPECT_EQ(rotation().poll().synced, std::vector{id});
  EXPECT_TRUE(has(rotation().give_report(1, old).message(), "rank 0 was given as rank 1's"));
  EXPECT_TRUE(has(rotation().give_report(2, old).message(), "no rank 2"));
  EXPECT_FALSE(rotation().give_report(0, std::span(old).first(old.size() - 1)).ok());
  const std::vector<std::byte> commands = commands_of_a_step(0);
  EXPECT_FALSE(rotation().give_report(0, commands).ok());
  EXPECT_TRUE(carry_out(0, {commands, {}}).ok());
}

TEST_F(RemoteRanksTest, ALeaderAndAWorkerThatDifferAreNamed) {
  open({.slots = {8, 8}, .ranks = 1, .remote_ranks = 1});
  const auto cache =
      std::make_unique<braid::test::DeviceBuffer>(driver(), rotation().layout().gpu_bytes(8));
  const auto opened = RankWorker::open(
      driver(), {rotation().layout(), {8, 9}, {context(0), cache->at(), compute(0)}, 1},
      std::make_unique<NativeCopier>(driver()));
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const std::vector<std::byte> commands = commands_of_a_step(1);
  const std::string words = opened.value()->apply(commands).status().message();
  EXPECT_TRUE(has(words, "8 gpu_slots, 8 host_slots")) << words;
  EXPECT_TRUE(has(words, "this worker 8 gpu_slots, 9 host_slots")) << words;
  EXPECT_TRUE(carry_out(0, {commands, {}}).ok());
  const auto another =
      RotationEngine::open(
          driver(),
          {rotation().layout(), {8, 8}, {}, {}, /*remote_ranks=*/2, /*report_deadline_ms=*/1},
          nullptr)
          .value();
  another->begin_step();
  EXPECT_TRUE(
      has(worker(0).apply(another->take_commands(1).value()).status().message(), "another leader"));
}

// ---- The order of calls ----

TEST_F(RemoteRanksTest, AStepsCommandsAreTakenBeforeItEnds) {
  open_three();
  rotation().begin_step();
  EXPECT_TRUE(has(rotation().end_step().message(), "commands of step 1 for rank 1 were not taken"));
  for (const size_t remote : {0, 1})
    EXPECT_TRUE(carry_out(remote, {take_commands(1 + remote), {}}).ok());
  EXPECT_TRUE(has(rotation().create().failure.message(), "commands of step 1 are taken"));
  EXPECT_EQ(rotation().table().size(), 0u);
  EXPECT_TRUE(rotation().end_step().ok());
  EXPECT_TRUE(take_commands(1).empty()) << "there is nothing to send";
  EXPECT_TRUE(has(rotation().take_commands(0).status().message(), "rank 0 is of this process"));
  EXPECT_TRUE(rotation().create().ok());
}

// Rank 1 launches the step as it was sent: what came behind it meanwhile would be ordered on rank 2
// alone.
TEST_F(RemoteRanksTest, NoRanksStepEndsWhileAnotherHasNotGotIt) {
  open_three();
  rotation().begin_step();
  EXPECT_TRUE(carry_out(0, {take_commands(1), {}}).ok());
  EXPECT_TRUE(has(rotation().end_step().message(), "commands of step 1 for rank 2 were not taken"));
  EXPECT_TRUE(has(rotation().create().failure.message(), "commands of step 1 are taken"));
  EXPECT_TRUE(carry_out(1, {take_commands(2), {}}).ok());
  EXPECT_TRUE(rotation().end_step().ok());
  EXPECT_TRUE(rotation().create().ok());
}

TEST_F(RemoteRanksTest, APlanThatComesAfterTheStepsCommandsHasDoneNothing) {
  open({.ranks = 1, .remote_ranks = 1});
  const BlockId cold = host_only_block(1);
  const BlockId hot = unused_block(2);
  const std::vector<std::byte> commands = commands_of_a_step(1);
  const Submitted late = rotation().submit({.evict = {&hot, 1}, .load = {&cold, 1}});
  EXPECT_EQ(late.failure.code(), BRAID_ERROR_ARGUMENT);
  EXPECT_TRUE(has(late.failure.message(), "commands of step 3 are taken"));
  EXPECT_EQ(late.down_bytes + late.up_bytes, 0u);
  EXPECT_EQ(state(cold), BlockState::kHostOnly);
  EXPECT_EQ(state(hot), BlockState::kSealed);
  EXPECT_EQ(rotation().table().gpu().fenced_count(), 0u) << "no rank has begun a copy";
  EXPECT_TRUE(carry_out(0, {commands, {}}).ok());
  EXPECT_TRUE(rotation().end_step().ok());
  EXPECT_TRUE(rotation().submit({.evict = {&hot, 1}, .load = {&cold, 1}}).failure.ok());
  settle();
  expect_on_host(hot, 2);
  EXPECT_EQ(state(cold), BlockState::kSynced);
}

TEST_F(RemoteRanksTest, AWorkersStepEndsBeforeTheNextCommands) {
  open({.ranks = 0, .remote_ranks = 1});
  EXPECT_TRUE(has(worker(0).end_step().message(), "no step is open"));
  EXPECT_EQ(worker(0).apply(commands_of_a_step(0)).value().step, 1u);
  EXPECT_TRUE(rotation().end_step().ok());
  const std::vector<std::byte> next = commands_of_a_step(0);
  EXPECT_TRUE(has(refusal(0, next), "step 1 has not ended"));
  EXPECT_TRUE(worker(0).end_step().ok());
  EXPECT_EQ(worker(0).apply(next).value().step, 2u);
  EXPECT_TRUE(worker(0).end_step().ok());
  EXPECT_TRUE(rotation().end_step().ok());
}

// ---- Failures ----

TEST_F(RemoteRanksTest, WhatOneRankCannotCopyStaysOnAllWhereItIs) {
  using Kind = CopyFaults::Kind;
  open({.slots = {8, 4}, .ranks = 1, .remote_ranks = 2});
  for (const Kind kind : {Kind::kRefused, Kind::kHalf, Kind::kEnqueued}) {
    const BlockId id = unused_block(7);
    remote_faults_[0] = {.kind = kind, .every = 1};
    EXPECT_TRUE(rotation().submit({.evict = {&id, 1}}).failure.ok()) << "it is told later";
    const Report down = settle();
    EXPECT_EQ(down.failed, std::vector{id});
    EXPECT_TRUE(has(down.cause, "rank 1: a copy that the test has refused")) << down.cause;
    EXPECT_EQ(state(id), BlockState::kSealed);
    remote_faults_ = {};
    EXPECT_TRUE(rotation().submit({.evict = {&id, 1}}).failure.ok());
    EXPECT_TRUE(settle().failed.empty()) << "once is enough";
    EXPECT_EQ(rotation().table().host().fenced_count(), 0u);
    expect_on_host(id, 7);
    remote_faults_[1] = {.kind = kind, .every = 1};
    EXPECT_TRUE(rotation().submit({.load = {&id, 1}}).failure.ok());
    EXPECT_EQ(rotation().begin_use(id), Refusal::kNone) << "nobody knows yet";
    const Report up = settle();
    EXPECT_EQ(up.failed, std::vector{id});
    EXPECT_TRUE(has(up.cause, "rank 2:")) << up.cause;
    EXPECT_EQ(state(id), BlockState::kHostOnly);
    expect_on_host(id, 7);
    EXPECT_EQ(rotation().end_use(id), Refusal::kNone);
    remote_faults_ = {};
    load_and_read(id, 7);
    (void)rotation().end_use(id);
    (void)rotation().release(id);
    settle();
  }
}

// The report that tells it is lost, and the request has ended before the next one.
TEST_F(RemoteRanksTest, AFailureIsToldUntilTheLeaderKnows) {
  open({.ranks = 0, .remote_ranks = 1});
  const BlockId id = host_only_block(1);
  remote_faults_[0] = {.every = 1};
  EXPECT_TRUE(rotation().submit({.load = {&id, 1}}).failure.ok());
  EXPECT_TRUE(carry_out(0, {take_commands(0), {}}).ok());
  (void)worker(0).report();
  rotation().begin_step();
  EXPECT_TRUE(carry_out(0, {take_commands(0), {}}).ok());
  EXPECT_TRUE(rotation().end_step().ok());
  EXPECT_EQ(rotation().release(id), Refusal::kNone);
  EXPECT_TRUE(give_report(0).ok());
  EXPECT_EQ(rotation().poll().failed, std::vector{id});
}

// Two reports come before the leader polls, and commands between them.
TEST_F(RemoteRanksTest, AFailureIsToldThoughAnotherReportCameBeforeThePoll) {
  open({.ranks = 0, .remote_ranks = 1});
  const BlockId id = host_only_block(1);
  remote_faults_[0] = {.every = 1};
  EXPECT_TRUE(rotation().submit({.load = {&id, 1}}).failure.ok());
  EXPECT_TRUE(carry_out(0, {take_commands(0), {}}).ok());
  EXPECT_TRUE(give_report(0).ok());
  rotation().begin_step();
  EXPECT_TRUE(carry_out(0, {take_commands(0), {}}).ok());
  EXPECT_TRUE(rotation().end_step().ok());
  EXPECT_TRUE(give_report(0).ok());
  EXPECT_EQ(rotation().poll().failed, std::vector{id});
  EXPECT_EQ(state(id), BlockState::kHostOnly);
  expect_on_host(id, 1);
}

// The copy is in the stream: it may land, and the step that is ordered behind it is launched.
TEST_F(RemoteRanksTest, ALoadWhoseEventWasRefusedFailsAlone) {
  open({.slots = {1, 8}, .ranks = 0, .remote_ranks = 1});
  const BlockId id = host_only_block(1);
  EXPECT_TRUE(rotation().submit({.load = {&id, 1}}).failure.ok());
  EXPECT_EQ(rotation().begin_use(id), Refusal::kNone);
  rotation().begin_step();
  checker_.refuse_every_record(2);  // and not when the worker tries again
  EXPECT_TRUE(carry_out(0, {take_commands(0), {}}).ok());
  checker_.refuse_every(0);
  EXPECT_TRUE(rotation().end_step().ok());
  const Report& report = settle();
  EXPECT_TRUE(report.failure.ok()) << report.failure.message();
  EXPECT_EQ(report.failed, std::vector{id});
  EXPECT_EQ(state(id), BlockState::kHostOnly);
  EXPECT_EQ(rotation().end_use(id), Refusal::kNone);
  load_and_read(id, 1);
}

// The step writes where the load may land yet.
TEST_F(RemoteRanksTest, AStepWritesBehindALoadWhoseEventWasRefused) {
  open({.slots = {1, 8}, .ranks = 0, .remote_ranks = 1});
  const BlockId aborted = host_only_block(1);
  EXPECT_TRUE(rotation().submit({.load = {&aborted, 1}}).failure.ok());
  EXPECT_EQ(rotation().release(aborted), Refusal::kNone);
  const BlockId id = sealed_block(2);
  checker_.refuse_every_record(2);
  let_remote_ranks_work();
  checker_.refuse_every(0);
  read_in_a_step(id, 2);
  EXPECT_TRUE(settle().failure.ok());
}

TEST_F(RemoteRanksTest, ARankThatCannotOrderItsStepEndsTheGroup) {
  open({.slots = {1, 8}, .ranks = 1, .remote_ranks = 2, .verifies = false});
  const BlockId id = host_only_block(1);
  EXPECT_TRUE(rotation().submit({.load = {&id, 1}}).failure.ok());
  rotation().begin_step();
  const std::vector<std::byte> commands = take_commands(2);
  checker_.refuse_every(1);
  EXPECT_EQ(worker(1).apply(commands).status().code(), BRAID_ERROR_CUDA)
      << "the step must not be launched";
  checker_.refuse_every(0);
  EXPECT_FALSE(worker(1).end_step().ok());
  EXPECT_TRUE(give_report(1).ok());
  const Status failure = rotation().poll().failure;
  EXPECT_TRUE(has(failure.message(), "rank 2 of the group has failed")) << failure.message();
  EXPECT_EQ(state(id), BlockState::kHostOnly) << "every host has it";
  EXPECT_FALSE(rotation().take_commands(1).ok());
  for (const auto* host : {worker(0).host_block(0), worker(1).host_block(0)})
    EXPECT_NE(host, nullptr);
  EXPECT_EQ(worker(0).host_block(8), nullptr);
}

TEST_F(RemoteRanksTest, AGpuOfAnotherProcessThatFailsLeavesTheHostsCopies) {
  open_three();
  const BlockId cold = host_only_block(1);
  const BlockId hot = sealed_block(2);
  let_remote_ranks_work();
  checker_.fail_gpu();
  EXPECT_TRUE(give_report(1).ok());
  EXPECT_FALSE(rotation().poll().failure.ok());
  EXPECT_EQ(state(cold), BlockState::kHostOnly);
  EXPECT_EQ(state(hot), BlockState::kLost);
  expect_on_host(cold, 1);
}

TEST_F(RemoteRanksTest, AFailureThatAWorkerMeetsAtTheEndOfItsStepIsReported) {
  open({.ranks = 1, .remote_ranks = 1});
  const BlockId id = synced_block(1);
  EXPECT_TRUE(worker(0).apply(commands_of_a_step(1)).ok());
  checker_.fail_gpu();
  EXPECT_FALSE(worker(0).end_step().ok());
  EXPECT_TRUE(give_report(0).ok());
  EXPECT_EQ(rotation().poll().failure.code(), BRAID_ERROR_CUDA);
  EXPECT_EQ(state(id), BlockState::kHostOnly) << "its process lives, and has its host copies";
}

// Nobody knows what became of its share of any block.
TEST_F(RemoteRanksTest, AProcessThatIsGoneTakesItsHostCopiesWithIt) {
  open({.ranks = 1, .remote_ranks = 2, .report_deadline_ms = 1});
  const BlockId cold = host_only_block(1);
  const BlockId hot = sealed_block(2);
  let_remote_ranks_work();
  (void)commands_of_a_step(2);
  Status failure;
  EXPECT_TRUE(braid::test::eventually([&] {
    failure = rotation().poll().failure;
    return !failure.ok();
  }));
  EXPECT_EQ(failure.code(), BRAID_ERROR_PEER);
  EXPECT_TRUE(has(failure.message(), "rank 2 of the group has failed: no report on commands"))
      << failure.message();
  for (const BlockId id : {cold, hot}) EXPECT_EQ(state(id), BlockState::kLost);
  EXPECT_EQ(rotation().host_block(0, cold), nullptr);
  EXPECT_FALSE(rotation().submit({.load = {&cold, 1}}).failure.ok());
  EXPECT_EQ(rotation().release(cold), Refusal::kNone);
}

class DeadlineTest : public ::testing::Test {
 protected:
  class SteppedClock final : public Clock {
   public:
    uint64_t now_ns() override { return now_ms * 1'000'000; }
    uint64_t now_ms = 1'000'000;
  };

  // What a worker says that has done all of these.
  void report(uint64_t commands_done) {
    EXPECT_TRUE(
        rank_
            .give_report(encode(RankReport{
                .group = 7, .rank = 3, .number = ++reports_, .commands_done = commands_done}))
            .ok());
  }
  Status polled() {
    progress_ = {};
    return rank_.poll(progress_);
  }

  SteppedClock clock_;
  RemoteRank rank_{{.group = 7, .rank = 3, .shape = {8, 8, 4096}, .report_deadline_ms = 500},
                   clock_};
  Progress progress_;
  uint64_t reports_ = 0;
};

TEST_F(DeadlineTest, ItRunsWhileCommandsAreWithTheWorker) {
  clock_.now_ms += 10'000;
  EXPECT_TRUE(polled().ok()) << "it has nothing to do";
  (void)rank_.take_commands(1);
  clock_.now_ms += 499;
  EXPECT_TRUE(polled().ok());
  report(1);
  clock_.now_ms += 10'000;
  EXPECT_TRUE(polled().ok());
  (void)rank_.take_commands(2);
  clock_.now_ms += 300;
  (void)rank_.take_commands(3);
  report(2);  // and not the third
  clock_.now_ms += 499;
  EXPECT_TRUE(polled().ok());
  clock_.now_ms += 1;
  EXPECT_TRUE(has(polled().message(), "no report on commands 3 has come for 500 ms"))
      << polled().message();
  EXPECT_EQ(polled().code(), BRAID_ERROR_PEER);
  EXPECT_TRUE(progress_.is_host_lost);
}

TEST_F(DeadlineTest, AReportOfAnotherGroupSaysNothing) {
  (void)rank_.take_commands(1);
  for (const RankReport& wrong :
       {RankReport{.group = 8, .rank = 3, .number = 1, .commands_done = 1},
        RankReport{.group = 7, .rank = 3, .number = 1, .commands_done = 2}})
    EXPECT_TRUE(has(rank_.give_report(encode(wrong)).message(), "another group"));
  clock_.now_ms += 500;
  EXPECT_FALSE(polled().ok());
}

}  // namespace
}  // namespace braid::kv::test
