// Sessions of the staged domain that break in the middle: what it says to its peer is lost, or the
// peer ends, between a write into the ring, its announcement, and the answer.
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <set>
#include <utility>

#include "fabric/sim/network.h"
#include "fabric/staged/domain.h"
#include "fabric/staged_fixture.h"
#include "simulation/simulation.h"

namespace braid::fabric {
namespace {

using test::some_bytes;

/// In front of a wire: messages pass, vanish, fail, or pass and look as if they had failed. Writes
/// always pass.
class Censor final : public Domain {
 public:
  enum class Messages : uint8_t { kPass, kVanish, kFail, kPassAsFailed };
  struct Orders {
    Messages messages = Messages::kPass;
    int room = std::numeric_limits<int>::max();  ///< for so many messages; then the queue is full
    int written = 0;                             ///< writes that have ended
    int censored = 0;                            ///< messages that have not simply passed
    bool doors_are_drained = true;
    std::vector<const std::byte*> rings;  ///< memory that was put behind a door
  };

  Censor(std::unique_ptr<Domain> wire, Orders& orders) : wire_(std::move(wire)), orders_(orders) {}
  const Traits& traits() const override { return wire_->traits(); }
  Bytes address() const override { return wire_->address(); }
  Result<uint32_t> add_region(MutableBytes memory, Access access) override {
    return wire_->add_region(memory, access);
  }
  RemoteRange remote_range(uint32_t region) const override { return wire_->remote_range(region); }
  void remove_region(uint32_t region) override { wire_->remove_region(region); }
  Result<uint32_t> connect(Bytes address) override { return wire_->connect(address); }
  void disconnect(uint32_t peer) override { wire_->disconnect(peer); }
  Result<uint32_t> open_door() override { return wire_->open_door(); }
  Bytes door_address(uint32_t door) const override { return wire_->door_address(door); }
  Result<uint32_t> add_door_region(uint32_t door, MutableBytes memory) override {
    orders_.rings.push_back(memory.data());
    return wire_->add_door_region(door, memory);
  }
  void close_door(uint32_t door) override { wire_->close_door(door); }
  Drain drain_door(uint32_t door) const override {
    return orders_.doors_are_drained ? wire_->drain_door(door) : Drain::kEnding;
  }
  bool post_write(const Write& write) override {
    if (!wire_->post_write(write)) return false;
    writes_.insert(write.context);
    return true;
  }
  bool post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) override {
    if (orders_.room == 0) return false;
    if (orders_.messages == Messages::kPass || orders_.messages == Messages::kPassAsFailed) {
      if (!wire_->post_send(peer, region, message, context)) return false;
      --orders_.room;
      if (orders_.messages == Messages::kPassAsFailed) unacknowledged_.insert(context);
      return true;
    }
    ++orders_.censored;
    const bool ok = orders_.messages == Messages::kVanish;
    censored_.push_back({Event::kPosted, ok, 0, 0, context});
    return true;
  }
  bool post_receive(uint32_t region, MutableBytes buffer, uint64_t context) override {
    return wire_->post_receive(region, buffer, context);
  }
  size_t poll(std::span<Completion> completions) override {
    size_t count = 0;
    for (; count < completions.size() && !censored_.empty(); censored_.pop_front())
      completions[count++] = censored_.front();
    const size_t more = wire_->poll(completions.subspan(count));
    for (Completion& completion : completions.subspan(count, more)) look_at(completion);
    return count + more;
  }

 private:
  void look_at(Completion& completion) {
    if (completion.event != Event::kPosted) return;
    if (writes_.erase(completion.context) > 0) ++orders_.written;
    if (unacknowledged_.erase(completion.context) == 0) return;
    completion.ok = false;
    ++orders_.censored;
  }

  std::unique_ptr<Domain> wire_;
  Orders& orders_;
  std::set<uint64_t> writes_;
  std::set<uint64_t> unacknowledged_;
  std::deque<Completion> censored_;
};

using Messages = Censor::Messages;

/// From host memory into a GPU of the emulated server, over the simulated network.
class StagedBreakTest : public StagedTest {
 protected:
  static constexpr size_t kBytes = 200'000;

  void SetUp() override {
    ServerTest::SetUp();
    memories_ = kind_named("simulated_software_host_to_gpu").make();
    wire_ = make_wire();
    owner_ = open(1, of_owner_);
    target_ = memories_->memory(1, kBytes);
    into_ = owner_->add_region(target_->bytes(), Access::kRemoteWrite).value();
    range_ = owner_->remote_range(into_);
    start_writer();
    ASSERT_NO_FATAL_FAILURE(write(1, 1));  // sets everything up
    ASSERT_TRUE(wait([&] { return ended_.count(1) == 1 && immediates_[1] == 1; }));
  }

  void TearDown() override {
    writer_.reset();  // they use what is of this class
    owner_.reset();
    StagedTest::TearDown();
  }

  virtual std::unique_ptr<test::Wire> make_wire() {
    return kind_named("simulated_software", test::host_wire_kinds()).make();
  }
  std::unique_ptr<Domain> open(int side, Censor::Orders& orders) {
    return staged::stage(std::make_unique<Censor>(wire_->open(side), orders)).value();
  }
  void start_writer() {
    of_writer_ = {};
    writer_ = open(0, of_writer_);
    peer_ = writer_->connect(owner_->address()).value();
    from_ = writer_->add_region(source_, Access::kLocal).value();
  }

  void pass_time() override {
    StagedTest::pass_time();
    memories_->pass_time();
  }

  /// All of the source, with new bytes; its number is its context and its immediate.
  void write(uint32_t number, uint32_t seed) {
    const auto bytes = some_bytes(kBytes, seed);
    std::copy(bytes.begin(), bytes.end(), source_.begin());
    Write write;
    write.peer = peer_;
    write.region = from_;
    write.source = source_;
    write.target_address = range_.base;
    write.target_key = range_.key;
    write.immediate = number;
    write.context = number;
    ASSERT_TRUE(wait([&] { return writer_->post_write(write); }));
  }

  std::unique_ptr<test::Wire> memories_;
  Censor::Orders of_owner_, of_writer_;
  std::unique_ptr<test::Memory> target_;
  std::vector<std::byte> source_ = std::vector<std::byte>(kBytes);
  uint32_t into_ = 0, from_ = 0;
  RemoteRange range_;
};

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
