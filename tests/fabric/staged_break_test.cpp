// Sessions of the staged domain that break in the middle: what it says to its peer is lost, or the
// peer ends, between a write into the ring, its announcement, and the answer.
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "fabric/sim/network.h"
#include "fabric/staged_censor.h"
#include "simulation/simulation.h"

namespace braid::fabric {
namespace {

using test::some_bytes;

TEST_F(StagedBreakTest, AWriterThatEndsBeforeItsAnnouncementHasWrittenNothing) {
  const int before = of_writer_.written;
  of_writer_.messages = Messages::kVanish;
  write(2, 2);
  ASSERT_TRUE(wait([&] { return of_writer_.written > before && of_writer_.censored > 0; }))
      << "it lies in the ring, and is not announced";
  writer_.reset();
  look_on();
  EXPECT_EQ(immediates_[2], 0);
  EXPECT_EQ(target_->get(), some_bytes(kBytes, 1)) << "what was there before";

  start_writer();
  write(3, 3);
  ASSERT_TRUE(wait([&] { return ended_.count(3) == 1 && immediates_[3] == 1; }));
  EXPECT_TRUE(ended_[3]) << "another writer is served";
  EXPECT_EQ(target_->get(), some_bytes(kBytes, 3));
  EXPECT_EQ(immediates_[2], 0);
  owner_->remove_region(into_);
  EXPECT_TRUE(wait([&] { return owner_->drain(into_) == Drain::kOver; }));
}

/// Until then bytes of the writer may still come in, although it has gone.
TEST_F(StagedBreakTest, ARingIsAnothersOnceItsDoorIsDrained) {
  const auto replace_writer = [&](uint32_t number) {
    const uint32_t visitor = owner_->connect(writer_->address()).value();
    writer_.reset();
    owner_->disconnect(visitor);
    start_writer();
    write(number, number);
    EXPECT_TRUE(wait([&] { return ended_.contains(number); }));
    EXPECT_TRUE(ended_[number]);
    EXPECT_EQ(target_->get(), some_bytes(kBytes, number));
  };
  const std::vector<const std::byte*>& rings = of_owner_.rings;
  ASSERT_EQ(rings.size(), 1u);
  of_owner_.doors_are_drained = false;
  replace_writer(2);
  ASSERT_EQ(rings.size(), 2u);
  EXPECT_NE(rings[0], rings[1]);
  of_owner_.doors_are_drained = true;
  replace_writer(3);
  ASSERT_EQ(rings.size(), 3u);
  EXPECT_TRUE(rings[2] == rings[0] || rings[2] == rings[1]) << "yet another one is pinned";
}

TEST_F(StagedBreakTest, AnAnnouncementWithoutAnAnswerFailsWhenItsConnectionDoes) {
  of_owner_.messages = Messages::kVanish;
  write(2, 2);
  ASSERT_TRUE(wait([&] { return immediates_[2] == 1 && of_owner_.censored > 0; }));
  EXPECT_EQ(target_->get(), some_bytes(kBytes, 2)) << "it has arrived";
  look_on();
  EXPECT_EQ(ended_.count(2), 0u) << "nobody has said so";

  of_writer_.messages = Messages::kFail;
  write(3, 3);
  ASSERT_TRUE(wait([&] { return ended_.count(2) == 1 && ended_.count(3) == 1; }));
  EXPECT_FALSE(ended_[2]);
  EXPECT_FALSE(ended_[3]);

  of_owner_.messages = of_writer_.messages = Messages::kPass;
  write(4, 4);
  ASSERT_TRUE(wait([&] { return ended_.count(4) == 1; })) << "with another ring";
  EXPECT_TRUE(ended_[4]);
  EXPECT_EQ(target_->get(), some_bytes(kBytes, 4));
  look_on();
  EXPECT_EQ(immediates_[2], 1);
  EXPECT_EQ(immediates_[3], 0);
  EXPECT_EQ(immediates_[4], 1);
}

/// Takes more segments in a write than a message can announce.
class WideWire final : public test::Wire {
 public:
  WideWire() {
    for (int side = 0; side < 2; ++side) network_.add_host([] {});
  }
  std::unique_ptr<Domain> open(int side) override { return network_.open_domain(side, places_++); }
  void pass_time() override {
    if (!simulation_.step(simulation::kForever - 1))
      simulation_.advance_clock(simulation_.now() + simulation::from_us(1));
  }
  uint64_t now_ns() override { return simulation::to_ns(simulation_.now()); }

 private:
  static sim::NetworkOptions options() {
    sim::NetworkOptions options;
    options.segments_max = 100;
    return options;
  }
  simulation::Simulation simulation_{{}};
  sim::Network network_{simulation_, 1, options()};
  uint64_t places_ = 0;
};

class StagedPagesTest : public StagedBreakTest {
 protected:
  static constexpr size_t kPages = 80, kPageBytes = 1024;

  std::unique_ptr<test::Wire> make_wire() override { return std::make_unique<WideWire>(); }

  /// Into every other page. With bytes that no page has had; the number is context and immediate.
  void write_pages(uint32_t number) {
    std::fill(source_.begin(), source_.end(), std::byte{9});
    std::vector<Segment> pages;
    for (size_t page = 0; page < kPages; ++page)
      pages.push_back({Bytes(source_).subspan(page * kPageBytes, kPageBytes),
                       range_.base + 2 * page * kPageBytes});
    Write write;
    write.peer = peer_;
    write.region = from_;
    write.source = pages.front().source;
    write.target_address = pages.front().target_address;
    write.further = std::span(pages).subspan(1);
    write.target_key = range_.key;
    write.immediate = number;
    write.context = number;
    ASSERT_TRUE(wait([&] { return writer_->post_write(write); }));
  }
  std::vector<std::byte> expected() const {
    std::vector<std::byte> bytes = some_bytes(kBytes, 1);
    for (size_t page = 0; page < kPages; ++page)
      std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(2 * page * kPageBytes), kPageBytes,
                  std::byte{9});
    return bytes;
  }
};

/// The owner says its answers again when it does not know whether they have arrived. If the writer
/// counted them twice, it would write over bytes in the ring that the owner has not copied yet.
TEST_F(StagedPagesTest, AnAnswerThatComesTwiceCountsOnce) {
  of_owner_.messages = Messages::kPassAsFailed;
  of_writer_.room = 1;  // for the announcement of the first pages
  write_pages(2);
  ASSERT_TRUE(wait([&] { return of_owner_.censored >= 4; }));
  of_owner_.messages = Messages::kPass;
  look_on();
  EXPECT_EQ(ended_.count(2), 0u) << "the other pages are not even announced";
  EXPECT_EQ(immediates_[2], 0);

  of_writer_.room = std::numeric_limits<int>::max();
  ASSERT_TRUE(wait([&] { return ended_.count(2) == 1 && immediates_[2] == 1; }));
  EXPECT_TRUE(ended_[2]);
  EXPECT_EQ(target_->get(), expected());
}

}  // namespace
}  // namespace braid::fabric
