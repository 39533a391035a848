// Requests that do not fit run to their ends by rotation, while copies, waits and records fail, and
// requests are aborted in every state. Then the faults stop, and every request finishes. What a
// step reads is verified whole, and all orders are checked.
#include <array>
#include <string>
#include <vector>

#include "kv/requests.h"

namespace braid::kv::test {
namespace {

using Kind = CopyFaults::Kind;

class CopyFaultsTest : public RequestsTest, public ::testing::WithParamInterface<CopyFaults> {};

TEST_P(CopyFaultsTest, EveryRequestEnds) {
  begin(GetParam().every, {.slots = {9, 12}, .layers = 2});
  faults_ = GetParam();
  run_with_faults();
  EXPECT_GT(faults_.failed, 0u);
  finish_without_faults();
}

std::vector<CopyFaults> copy_faults() {
  std::vector<CopyFaults> all;
  for (const Kind kind : {Kind::kRefused, Kind::kHalf, Kind::kEnqueued})
    for (const uint64_t every : {1, 2, 3, 5, 7}) {
      all.push_back({.kind = kind, .every = every, .up = false});
      all.push_back({.kind = kind, .every = every, .down = false});
      all.push_back({.kind = kind, .every = every});
    }
  return all;
}
std::string name_of(const ::testing::TestParamInfo<CopyFaults>& tested) {
  constexpr std::array kKinds = {"Refused", "Half", "Enqueued"};
  const CopyFaults& faults = tested.param;
  return std::string(kKinds[static_cast<size_t>(faults.kind)]) + (faults.down ? "Down" : "") +
         (faults.up ? "Up" : "") + std::to_string(faults.every);
}
INSTANTIATE_TEST_SUITE_P(Every, CopyFaultsTest, ::testing::ValuesIn(copy_faults()), name_of);

class RefusedOrdersTest : public RequestsTest, public ::testing::WithParamInterface<uint64_t> {};

// Waits and records that the driver refuses: what cannot be ordered is not done.
TEST_P(RefusedOrdersTest, EveryRequestEnds) {
  begin(GetParam(), {.slots = {9, 12}, .layers = 2});
  checker_.refuse_every(GetParam());
  run_with_faults();
  EXPECT_GT(checker_.refused(), 0u);
  finish_without_faults();
}
INSTANTIATE_TEST_SUITE_P(Every, RefusedOrdersTest, ::testing::Values(2, 3, 5, 11, 23));

// Room for one request and a half on the host.
TEST_F(RequestsTest, AHostPoolThatIsFull) {
  begin(1, {.slots = {9, 6}, .layers = 2});
  run_with_faults();
  EXPECT_TRUE(refusals_.contains(Refusal::kNoHostSlot));
  finish_without_faults();
}

TEST_F(RequestsTest, AbortsInEveryState) {
  begin(2, {.slots = {9, 12}, .layers = 2});
  faults_ = {.every = 4};
  run([&](int step) {
    if (step % 3 == 0) abort_one();
    return step < 4 * kStepsWithFaults;
  });
  finish_without_faults();
  for (const BlockState aborted :
       {BlockState::kDirty, BlockState::kSealed, BlockState::kSyncing, BlockState::kSynced,
        BlockState::kHostOnly, BlockState::kLoading})
    EXPECT_TRUE(aborted_.contains(aborted)) << "no block was " << state_name(aborted);
}

class GroupRequestsTest : public RequestsTest {
 protected:
  GroupRequestsTest() { gpus_needed = 2; }
};

// Of three ranks two are remote, and late by random steps. One of them fails: the caller learns it
// from a poll, when the blocks are in use already.
class RemoteCopyFaultsTest : public CopyFaultsTest {
 protected:
  RemoteCopyFaultsTest() { gpus_needed = 3; }
};

TEST_P(RemoteCopyFaultsTest, EveryRequestEnds) {
  begin(GetParam().every,
        {.slots = {9, 12}, .layers = 2, .ranks = 1, .remote_ranks = 2, .lags = true});
  remote_faults_[1] = GetParam();
  run_with_faults();
  EXPECT_GT(remote_faults_[1].failed, 0u);
  EXPECT_GT(failures_, 0u);
  finish_without_faults();
}
INSTANTIATE_TEST_SUITE_P(Every, RemoteCopyFaultsTest, ::testing::ValuesIn(copy_faults()), name_of);

class RefusedRecordsTest : public GroupRequestsTest,
                           public ::testing::WithParamInterface<uint64_t> {};

// Behind copies that steps and other copies wait for. So rarely that no worker's second try is
// refused, too.
TEST_P(RefusedRecordsTest, EveryRequestEnds) {
  begin(GetParam(), {.slots = {9, 12}, .layers = 2, .ranks = 0, .remote_ranks = 2, .lags = true});
  checker_.refuse_every_record(GetParam());
  run_with_faults();
  EXPECT_GT(checker_.refused(), 0u);
  EXPECT_GT(failures_, 0u);
  finish_without_faults();
}
INSTANTIATE_TEST_SUITE_P(Every, RefusedRecordsTest, ::testing::Values(5, 7, 11, 13));

class RemoteRequestsTest : public GroupRequestsTest,
                           public ::testing::WithParamInterface<uint64_t> {};

// The leader has no GPU of its own.
TEST_P(RemoteRequestsTest, RanksThatAreLateByRandomSteps) {
  begin(GetParam(), {.slots = {9, 12}, .layers = 2, .ranks = 0, .remote_ranks = 2, .lags = true});
  run_with_faults();
  EXPECT_EQ(failures_, 0u);
  finish_without_faults();
}
INSTANTIATE_TEST_SUITE_P(Seeds, RemoteRequestsTest, ::testing::Range<uint64_t>(1, 9));

TEST_F(GroupRequestsTest, RanksThatFailInTurns) {
  begin(3, {.slots = {9, 12}, .layers = 2, .ranks = 2});
  faults_ = {.kind = Kind::kHalf, .every = 3};
  run_with_faults();
  EXPECT_GT(faults_.failed, 0u);
  finish_without_faults();
}

}  // namespace
}  // namespace braid::kv::test
