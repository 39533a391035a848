// The memory of batches' lists, with tickets that are played here.
#include "multipath/list_ring.h"

#include "support/server.h"

namespace braid::multipath {
namespace {

class ListRingTest : public test::ServerTest {
 protected:
  struct Played {
    cuda::TicketReport report{};
    Ticket ticket;
    Played() {
      ticket.report = &report;
      ++ticket.generation;
    }
    void leave() { report.generation = ticket.generation; }
  };

  static bool overlap(std::span<cuda::SliceList> one, std::span<cuda::SliceList> other) {
    return one.data() < other.data() + other.size() && other.data() < one.data() + one.size();
  }
};

TEST_F(ListRingTest, WhatIsInUseIsNotGivenOutAgain) {
  auto ring = std::move(ListRing::open(driver())).value();
  Played held;
  const auto kept = ring->reserve(ListRing::capacity() / 2);
  ring->commit(kept.size(), held.ticket);
  EXPECT_TRUE(ring->reserve(ListRing::capacity() / 2 + 1).empty());
  const auto rest = ring->reserve(ListRing::capacity() / 2);
  ASSERT_FALSE(rest.empty());
  EXPECT_FALSE(overlap(kept, rest));
  held.leave();
  EXPECT_EQ(ring->reserve(ListRing::capacity()).size(), ListRing::capacity());
}

// A ticket is retired when nobody can say any more when its kernels leave.
TEST_F(ListRingTest, ARetiredTicketKeepsItsListsAndNothingElse) {
  auto ring = std::move(ListRing::open(driver())).value();
  const size_t some = ListRing::capacity() / 10;
  Played first, lost, later;
  const auto before = ring->reserve(some);
  ring->commit(before.size(), first.ticket);
  const auto kept = ring->reserve(some);
  ring->commit(kept.size(), lost.ticket);
  lost.ticket.retired = true;
  first.leave();
  for (int round = 0; round < 2000; ++round) {
    const auto given = ring->reserve(some);
    ASSERT_EQ(given.size(), some) << "round " << round;
    ASSERT_FALSE(overlap(given, kept)) << "round " << round;
    ++later.ticket.generation;
    ring->commit(given.size(), later.ticket);
    later.leave();
  }
}

}  // namespace
}  // namespace braid::multipath
