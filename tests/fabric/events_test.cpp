// Being told by libbraid_fabric: callbacks, and the descriptor.
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>

#include "fabric/library_pair.h"

namespace braid {
namespace {

using std::chrono::milliseconds;
using test::eventually;

/// Open once; others wait for it.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex_);
    return opened_.wait_for(lock, std::chrono::seconds(60), [&] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

bool is_readable(int descriptor, int limit_ms) {
  pollfd asked{descriptor, POLLIN, 0};
  return poll(&asked, 1, limit_ms) == 1;
}

class CallbackTest : public test::FabricPair {};

TEST_F(CallbackTest, TheEndOfATicketAndACountAreToldOnceAndAfterTheBytes) {
  std::vector<std::byte> source(3'000'001, std::byte{9}), memory(source.size());
  const auto target = open_memory(memory);
  const auto from = writer_->add_region(source.data(), source.size()).value();
  const auto immediate = owner_->acquire_immediate().value();
  const uint64_t expected = Fabric::immediates_of_write(memory.size());
  std::atomic<int> counted = 0, ended = 0;
  std::atomic<bool> was_whole = false, was_done = false, was_elsewhere = false;
  const auto here = std::this_thread::get_id();
  ASSERT_TRUE(owner_
                  ->on_count(immediate, expected,
                             [&](uint64_t count) {
                               was_whole = count == expected && memory == source;
                               was_elsewhere = std::this_thread::get_id() != here;
                               ++counted;
                             })
                  .ok());
  const auto ticket =
      writer_->write(from, target, {0, 0, source.size()}, immediate, kLimit).value();
  ASSERT_TRUE(writer_
                  ->on_end(ticket,
                           [&](Fabric::TicketState state) {
                             was_done = state == Fabric::TicketState::kDone;
                             ++ended;
                           })
                  .ok());
  ASSERT_TRUE(eventually([&] { return counted == 1 && ended == 1; }));
  EXPECT_TRUE(was_whole && was_done && was_elsewhere);
  // What has happened already is told at once.
  ASSERT_TRUE(owner_->on_count(immediate, expected, [&](uint64_t) { ++counted; }).ok());
  ASSERT_TRUE(writer_->on_end(ticket, [&](Fabric::TicketState) { ++ended; }).ok());
  ASSERT_TRUE(eventually([&] { return counted == 2 && ended == 2; }));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(counted + ended, 4);
}

TEST_F(CallbackTest, PeersThatConnectAndMessagesAreTold) {
  std::mutex mutex;
  std::set<Fabric::Peer> connected;
  ASSERT_TRUE(owner_
                  ->on_peers([&](Fabric::Peer peer, Fabric::PeerChange change) {
                    const std::lock_guard lock(mutex);
                    if (change == Fabric::PeerChange::kConnected) connected.insert(peer);
                  })
                  .ok());
  std::atomic<int> received = 0;
  std::vector<Fabric::ByteList> messages;  // of the callback's thread
  ASSERT_TRUE(owner_
                  ->on_messages([&] {
                    // It fails once the engine is closed, after the last message.
                    for (auto one = owner_->receive(milliseconds(0)); one.ok() && one.value();
                         one = owner_->receive(milliseconds(0))) {
                      messages.push_back(one.value()->bytes);
                      ++received;
                    }
                  })
                  .ok());
  auto third = Fabric::open({"tcp;ofi_rxm", {"127.0.0.1", "127.0.0.1"}}).value();
  ASSERT_TRUE(third.connect(owner_->address().value(), kLimit).ok());
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return connected.size() == 1;
  }));
  EXPECT_EQ(owner_->accept(kLimit).value().value(), *connected.begin());
  for (int i = 0; i < 100; ++i) {
    const Fabric::ByteList message(1 + static_cast<size_t>(i), std::byte{7});
    ASSERT_TRUE(eventually([&] { return writer_->send(owners_peer_, message).ok(); }));
  }
  ASSERT_TRUE(eventually([&] { return received == 100; }));
  std::set<size_t> sizes;
  for (const auto& message : messages) sizes.insert(message.size());
  EXPECT_EQ(sizes.size(), 100u);
  owner_.reset();  // its callbacks use what is local here
}

TEST_F(CallbackTest, ASlowCallbackStopsNeitherWritesNorWaits) {
  std::vector<std::byte> source(100'000, std::byte{9}), memory(source.size());
  const auto target = open_memory(memory);
  const auto from = writer_->add_region(source.data(), source.size()).value();
  Gate begun, go_on;
  for (Fabric* each : {&*owner_, &*writer_}) {
    const auto immediate = each->acquire_immediate().value();
    ASSERT_TRUE(each->on_count(immediate, 0,
                               [&](uint64_t) {
                                 begun.open();
                                 go_on.wait();
                               })
                    .ok());
  }
  ASSERT_TRUE(begun.wait());
  for (int i = 0; i < 50; ++i) {
    const auto ticket = writer_->write(from, target, {0, 0, source.size()}, {}, kLimit).value();
    ASSERT_EQ(writer_->wait(ticket, kLimit).value(), Fabric::TicketState::kDone);
  }
  EXPECT_EQ(memory, source);
  go_on.open();
  owner_.reset();
  writer_.reset();
}

TEST_F(CallbackTest, ACallbackSubmitsWaitsAndAsks) {
  std::vector<std::byte> source(64, std::byte{9}), memory(source.size());
  const auto target = open_memory(memory);
  const auto from = writer_->add_region(source.data(), source.size()).value();
  constexpr int kChain = 300;
  std::atomic<int> ended = 0;
  std::atomic<bool> is_well = true;
  std::function<void(Fabric::TicketState)> next = [&](Fabric::TicketState state) {
    is_well = is_well && state == Fabric::TicketState::kDone;
    if (++ended == kChain) return;
    const auto waited = writer_->write(from, target, {0, 0, 64}, {}, kLimit).value();
    is_well = is_well && writer_->wait(waited, kLimit).value() == Fabric::TicketState::kDone;
    const auto ticket = writer_->write(from, target, {0, 0, 64}, {}, kLimit).value();
    is_well = is_well && writer_->on_end(ticket, next).ok();
  };
  const auto ticket = writer_->write(from, target, {0, 0, 64}, {}, kLimit).value();
  ASSERT_TRUE(writer_->on_end(ticket, next).ok());
  EXPECT_TRUE(eventually([&] { return ended == kChain; }));
  EXPECT_TRUE(is_well);
}

/// With a limit on the way to callbacks, and another on the way back, this stands still.
TEST_F(CallbackTest, ThousandsOfCallbacksThatSubmitDoNotBlockEachOther) {
  constexpr int kMany = 20'000;
  const auto immediate = writer_->acquire_immediate().value();
  std::atomic<int> called = 0;
  for (int i = 0; i < kMany; ++i)
    ASSERT_TRUE(writer_
                    ->on_count(immediate, 0,
                               [&](uint64_t) {
                                 if (writer_->notify(owners_peer_, 77, kLimit).ok()) ++called;
                               })
                    .ok());
  EXPECT_TRUE(eventually([&] { return called == kMany; }));
}

TEST_F(CallbackTest, WhatCannotHappenAnyMoreIsCancelledOnce) {
  struct Told {
    std::atomic<int> cancelled = 0, happened = 0;
  } told;
  const auto tell = [](const braid_fabric_event* event) {
    auto* all = static_cast<Told*>(event->user);
    ++(event->is_cancelled ? all->cancelled : all->happened);
  };
  const auto released = owner_->acquire_immediate().value();
  const auto kept = owner_->acquire_immediate().value();
  for (const auto immediate : {released, kept})
    ASSERT_EQ(braid_fabric_on_count(owner_->get(), immediate, 5, tell, &told), BRAID_OK);
  ASSERT_TRUE(owner_->release(released).ok());
  ASSERT_TRUE(eventually([&] { return told.cancelled == 1; }));
  for (int i = 0; i < 2; ++i) {  // the second takes the place of the first
    ASSERT_EQ(braid_fabric_on_peers(owner_->get(), tell, &told), BRAID_OK);
    ASSERT_EQ(braid_fabric_on_messages(owner_->get(), tell, &told), BRAID_OK);
  }
  ASSERT_TRUE(eventually([&] { return told.cancelled == 3; }));
  owner_.reset();
  EXPECT_EQ(told.cancelled, 6) << "all have returned when the engine is closed";
  EXPECT_EQ(told.happened, 0);
  EXPECT_EQ(braid_fabric_on_count(writer_->get(), 12345, 5, tell, &told), BRAID_ERROR_ARGUMENT);
  writer_.reset();
  EXPECT_EQ(told.cancelled, 6) << "a request that was refused has no event";
}

TEST_F(CallbackTest, ClosingWaitsForTheCallbackThatRuns) {
  struct Shared {
    braid_fabric* fabric = owner();
    Gate begun;
    std::atomic<bool> has_returned = false, was_refused = false;
    static braid_fabric* owner() {
      braid_fabric* opened = nullptr;
      braid_fabric_options options{};
      options.struct_bytes = sizeof options;
      options.provider = "tcp;ofi_rxm";
      return braid_fabric_open(&options, &opened) == BRAID_OK ? opened : nullptr;
    }
  } shared;
  ASSERT_NE(shared.fabric, nullptr);
  const auto use_it_until_it_is_closed = [](const braid_fabric_event* event) {
    auto* all = static_cast<Shared*>(event->user);
    all->begun.open();
    uint32_t number = 0;
    while (braid_fabric_acquire_immediate(all->fabric, &number) == BRAID_OK)
      std::this_thread::sleep_for(milliseconds(1));
    all->was_refused = std::string(braid_fabric_last_error()) == "this engine is being closed";
    std::this_thread::sleep_for(milliseconds(20));
    all->has_returned = true;
  };
  uint32_t immediate = 0;
  ASSERT_EQ(braid_fabric_acquire_immediate(shared.fabric, &immediate), BRAID_OK);
  ASSERT_EQ(braid_fabric_on_count(shared.fabric, immediate, 0, use_it_until_it_is_closed, &shared),
            BRAID_OK);
  ASSERT_TRUE(shared.begun.wait());
  braid_fabric_close(shared.fabric);
  EXPECT_TRUE(shared.has_returned);
  EXPECT_TRUE(shared.was_refused);
}

/// Whatever the call is that the end meets: a request that was taken gets its event.
TEST(ClosingTest, ACallbackAsksUntilItIsRefused) {
  struct Shared {
    braid_fabric* fabric = nullptr;
    Gate begun;
    int taken = 0, code = BRAID_OK;
    std::string why;
    std::atomic<int> told = 0;
    static void count(const braid_fabric_event* event) {
      ++static_cast<Shared*>(event->user)->told;
    }
    static void ask(const braid_fabric_event* event) {
      auto& all = *static_cast<Shared*>(event->user);
      all.begun.open();
      braid_fabric_event unused;
      size_t unused_count = 0;
      while ((all.code = braid_fabric_on_messages(all.fabric, count, &all)) == BRAID_OK &&
             ++all.taken > 0 &&
             (all.code = braid_fabric_take_events(all.fabric, &unused, 1, &unused_count)) ==
                 BRAID_OK) {
      }
      all.why = braid_fabric_last_error();
    }
  };
  constexpr int kTurns = 100;
  for (int turn = 0; turn < kTurns; ++turn) {
    Shared shared;
    braid_fabric_options options{};
    options.struct_bytes = sizeof options;
    options.provider = "local";
    ASSERT_EQ(braid_fabric_open(&options, &shared.fabric), BRAID_OK);
    uint32_t immediate = 0;
    ASSERT_EQ(braid_fabric_acquire_immediate(shared.fabric, &immediate), BRAID_OK);
    ASSERT_EQ(braid_fabric_on_count(shared.fabric, immediate, 0, Shared::ask, &shared), BRAID_OK);
    ASSERT_TRUE(shared.begun.wait());
    braid_fabric_close(shared.fabric);
    ASSERT_EQ(shared.code, BRAID_ERROR_UNAVAILABLE) << shared.why;
    ASSERT_EQ(shared.why, "this engine is being closed");
    ASSERT_EQ(shared.told, shared.taken);
  }
}

TEST_F(CallbackTest, ACallbackDestroysItsEngine) {
  std::vector<std::byte> memory(1 << 20);
  const auto target = open_memory(memory);
  auto source = std::make_unique<std::vector<std::byte>>(memory.size(), std::byte{9});
  const auto from = writer_->add_region(source->data(), source->size()).value();
  Gate destroyed;
  struct Told {
    std::atomic<int> cancelled = 0;
  } told;
  const auto never = writer_->acquire_immediate().value();
  ASSERT_EQ(braid_fabric_on_count(
                writer_->get(), never, 1,
                [](const braid_fabric_event* event) {
                  if (event->is_cancelled) ++static_cast<Told*>(event->user)->cancelled;
                },
                &told),
            BRAID_OK);
  const auto ticket = writer_->write(from, target, {0, 0, memory.size()}, {}, kLimit).value();
  ASSERT_TRUE(writer_
                  ->on_end(ticket,
                           [&](Fabric::TicketState) {
                             writer_.reset();
                             source.reset();  // nothing reads it any more
                             destroyed.open();
                           })
                  .ok());
  ASSERT_TRUE(destroyed.wait());
  EXPECT_TRUE(eventually([&] { return told.cancelled == 1; }));
  EXPECT_EQ(memory, std::vector<std::byte>(memory.size(), std::byte{9}));
  EXPECT_TRUE(owner_->acquire_immediate().ok()) << "the other goes on";
}

/// The law: what a stream waits for needs no CPU.
TEST_F(CallbackTest, AStreamMayNotWaitForACountThatACpuPollsFor) {
  const auto immediate = owner_->acquire_immediate().value();
  EXPECT_EQ(
      owner_->stream_wait_count(immediate, 1, nullptr).message(),
      "over tcp;ofi_rxm a CPU polls for immediates, and what a stream waits for must not need "
      "the CPU. Ask for a callback, and enqueue the work there");
  EXPECT_FALSE(owner_->stream_wait_count(immediate + 1, 1, nullptr).ok()) << "nobody's";
}

class DescriptorTest : public test::FabricPair {
 protected:
  void SetUp() override {
    FabricPair::SetUp();
    if (HasFatalFailure()) return;
    descriptor_ = owner_->event_descriptor().value();
    immediate_ = owner_->acquire_immediate().value();
  }
  void notify() { ASSERT_TRUE(writer_->notify(owners_peer_, immediate_, kLimit).ok()); }

  int descriptor_ = -1;
  Fabric::Immediate immediate_ = 0;
};

TEST_F(DescriptorTest, ItIsReadableOnceWhatWasAskedForHasHappened) {
  notify();
  ASSERT_EQ(owner_->wait_count(immediate_, 1, kLimit).value(), 1u);
  EXPECT_FALSE(is_readable(descriptor_, 20)) << "nobody asked";
  ASSERT_TRUE(owner_->on_count(immediate_, 2).ok());
  EXPECT_FALSE(is_readable(descriptor_, 20)) << "it has not happened";
  notify();
  ASSERT_TRUE(is_readable(descriptor_, 60'000)) << "nobody drives the engine but itself";
  const auto events = owner_->take_events().value();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, BRAID_FABRIC_EVENT_COUNT);
  EXPECT_EQ(events[0].id, immediate_);
  EXPECT_EQ(events[0].value, 2u);
  EXPECT_FALSE(is_readable(descriptor_, 0));
  EXPECT_TRUE(owner_->take_events().value().empty());
}

TEST_F(DescriptorTest, ItStaysReadableUntilTheLastEventIsTaken) {
  for (uint64_t count = 1; count <= 3; ++count)
    ASSERT_TRUE(owner_->on_count(immediate_, count).ok());
  for (int i = 0; i < 3; ++i) notify();
  ASSERT_EQ(owner_->wait_count(immediate_, 3, kLimit).value(), 3u);
  for (int left = 3; left > 0; --left) {
    ASSERT_TRUE(is_readable(descriptor_, 60'000)) << left;
    ASSERT_EQ(owner_->take_events(1).value().size(), 1u);
  }
  EXPECT_FALSE(is_readable(descriptor_, 0));
}

TEST_F(DescriptorTest, WhoeverReadsItHimselfStillGetsEveryEvent) {
  for (uint64_t count = 1; count <= 3; ++count)
    ASSERT_TRUE(owner_->on_count(immediate_, count).ok());
  for (int i = 0; i < 3; ++i) notify();
  ASSERT_EQ(owner_->wait_count(immediate_, 3, kLimit).value(), 3u);
  uint64_t number = 0;
  ASSERT_EQ(read(descriptor_, &number, sizeof number), ssize_t{sizeof number});
  EXPECT_FALSE(is_readable(descriptor_, 0)) << "as if it were empty";
  ASSERT_EQ(owner_->take_events(1).value().size(), 1u);
  EXPECT_TRUE(is_readable(descriptor_, 0)) << "two are left";
  EXPECT_EQ(owner_->take_events().value().size(), 2u);
  EXPECT_LT(read(descriptor_, &number, sizeof number), 0) << "it does not block";
}

TEST_F(DescriptorTest, ManyMessagesAreOneEvent) {
  ASSERT_TRUE(owner_->on_messages().ok());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(writer_->send(owners_peer_, {std::byte{1}}).ok());
  std::this_thread::sleep_for(milliseconds(100));
  ASSERT_TRUE(is_readable(descriptor_, 60'000));
  EXPECT_EQ(owner_->take_events().value().size(), 1u);
  int received = 0;
  ASSERT_TRUE(eventually([&] {
    while (owner_->receive(milliseconds(0)).value()) ++received;
    return received == 5;
  }));
  (void)owner_->take_events();
  ASSERT_TRUE(writer_->send(owners_peer_, {std::byte{1}}).ok());
  EXPECT_TRUE(is_readable(descriptor_, 60'000)) << "the next is told again";
}

}  // namespace
}  // namespace braid
