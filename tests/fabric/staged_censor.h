// A staged domain whose wire does what a test says, and a writer and an owner with one each.
#pragma once

#include <deque>
#include <limits>
#include <set>
#include <utility>

#include "fabric/staged/domain.h"
#include "fabric/staged/records.h"
#include "fabric/staged_fixture.h"

namespace braid::fabric {

/// In front of a wire: messages pass, vanish, fail, pass and look as if they had failed, or stay
/// under way. Writes pass or stay.
class Censor final : public Domain {
 public:
  enum class Messages : uint8_t { kPass, kVanish, kFail, kPassAsFailed, kStay };
  struct Orders {
    Messages messages = Messages::kPass;
    bool spares_users = false;  ///< those that are not of the staged domain pass
    bool writes_stay = false;
    int staying = 0;                 ///< postings that have stayed under way
    bool silence_ends_them = false;  ///< as over TCP, when the peer is abandoned; else as over shm
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
  void abandon(uint32_t peer, Absence absence) override {
    if (absence == Absence::kSilent && !orders_.silence_ends_them) return;
    if (absence == Absence::kEnded) ended_.insert(peer);
    wire_->abandon(peer, absence);
    std::erase_if(staying_, [&](const Staying& posting) {
      if (posting.peer == peer) fail(posting.context);
      return posting.peer == peer;
    });
  }
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
    if (ended_.contains(write.peer)) return fail(write.context);
    if (orders_.writes_stay) return stay(write.peer, write.context);
    if (!wire_->post_write(write)) return false;
    writes_.insert(write.context);
    return true;
  }
  bool post_send(uint32_t peer, uint32_t region, Bytes message, uint64_t context) override {
    if (orders_.room == 0) return false;
    if (ended_.contains(peer)) return fail(context);
    const bool is_spared = orders_.spares_users && !staged::version_of(message);
    const Messages how = is_spared ? Messages::kPass : orders_.messages;
    if (how == Messages::kStay) return stay(peer, context);
    if (how == Messages::kPass || how == Messages::kPassAsFailed) {
      if (!wire_->post_send(peer, region, message, context)) return false;
      --orders_.room;
      if (how == Messages::kPassAsFailed) unacknowledged_.insert(context);
      return true;
    }
    ++orders_.censored;
    if (how == Messages::kFail) return fail(context);
    censored_.push_back({Event::kPosted, true, 0, 0, context});
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
  struct Staying {
    uint32_t peer;
    uint64_t context;
  };
  bool stay(uint32_t peer, uint64_t context) {
    ++orders_.staying;
    staying_.push_back({peer, context});
    return true;
  }
  bool fail(uint64_t context) {
    censored_.push_back({Event::kPosted, false, 0, 0, context});
    return true;
  }
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
  std::vector<Staying> staying_;
  std::set<uint32_t> ended_;  // peers whose processes have ended: nothing goes there any more
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
    const auto bytes = test::some_bytes(kBytes, seed);
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

}  // namespace braid::fabric
