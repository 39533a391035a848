// The memory of batches' lists, with transfers that are played here.
#include "multipath/list_ring.h"

#include "support/server.h"

namespace braid::multipath {
namespace {

class ListRingTest : public test::ServerTest {
 protected:
  struct Played {
    cuda::TransferReport report{};
    TransferState transfer;
    Played() {
      transfer.report = &report;
      ++transfer.generation;
    }
    void leave() { report.generation = transfer.generation; }
  };

  std::unique_ptr<ListRing> open_ring() {
    return std::make_unique<ListRing>(
        cuda::RegisteredMemory::open(driver(), ListRing::kSizeBytes, "lists").value());
  }
  static bool overlap(std::span<cuda::SliceList> one, std::span<cuda::SliceList> other) {
    return one.data() < other.data() + other.size() && other.data() < one.data() + one.size();
  }
};

TEST_F(ListRingTest, WhatIsInUseIsNotGivenOutAgain) {
  const auto ring = open_ring();
  Played held;
  const auto kept = ring->reserve(ListRing::kLists / 2);
  ring->commit(kept.size(), held.transfer);
  EXPECT_TRUE(ring->reserve(ListRing::kLists / 2 + 1).empty());
  const auto rest = ring->reserve(ListRing::kLists / 2);
  ASSERT_FALSE(rest.empty());
  EXPECT_FALSE(overlap(kept, rest));
  held.leave();
  EXPECT_EQ(ring->reserve(ListRing::kLists).size(), ListRing::kLists);
}

// A transfer is retired when nobody can say any more when its kernels leave.
TEST_F(ListRingTest, ARetiredTicketKeepsItsListsAndNothingElse) {
  const auto ring = open_ring();
  const size_t some = ListRing::kLists / 10;
  Played first, lost, later;
  const auto before = ring->reserve(some);
  ring->commit(before.size(), first.transfer);
  const auto kept = ring->reserve(some);
  ring->commit(kept.size(), lost.transfer);
  lost.transfer.retired = true;
  first.leave();
  for (int round = 0; round < 2000; ++round) {
    const auto given = ring->reserve(some);
    ASSERT_EQ(given.size(), some) << "round " << round;
    ASSERT_FALSE(overlap(given, kept)) << "round " << round;
    ++later.transfer.generation;
    ring->commit(given.size(), later.transfer);
    later.leave();
  }
}

}  // namespace
}  // namespace braid::multipath
