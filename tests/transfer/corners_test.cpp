// Two engines of one process, where callers do what is allowed and rare: memory that comes and
// goes, segments that are closed early, arguments that are wrong.
#include <poll.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "braid/transfer_abi.h"
#include "transfer/owner.h"

namespace braid::transfer::test {
namespace {

using Cause = Transfer::Cause;
constexpr size_t kBytes = 4 << 20;
constexpr auto kLimit = 20s;

/// An engine and memory of its process, of which nothing is registered yet.
struct Side {
  Side() : memory(kBytes), transfer(Transfer::open(options()).value()) {}
  static Transfer::Options options() {
    Transfer::Options options;
    options.addresses = {"127.0.0.1"};
    options.providers = {"tcp;ofi_rxm"};
    return options;
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory.data()); }
  Transfer::Buffer add(size_t offset, size_t size_bytes, Transfer::Rights rights = {}) {
    return transfer.register_memory(memory.data() + offset, size_bytes, rights).value();
  }
  Cause run(const Transfer::Request& request, std::chrono::microseconds limit = kLimit) {
    const Transfer::Batch batch = transfer.submit({request}).value();
    (void)transfer.wait(batch, limit);
    return transfer.outcomes(batch).value().front().cause;
  }

  std::vector<std::byte> memory;  // the engine ends first
  Transfer transfer;
};

class TransferCorners : public testing::Test {
 protected:
  TransferCorners() {
    buffer = me.add(0, kBytes);
    segment = me.transfer.open_segment(owner.transfer.name().value(), kLimit).value();
    fill(me.memory, 1);
  }
  Transfer::Request write(size_t there, size_t size_bytes, size_t here = 0) {
    return {segment, Transfer::Operation::kWrite, me.memory.data() + here, owner.address() + there,
            size_bytes};
  }
  Transfer::Request read(size_t there, size_t size_bytes, size_t here = 0) {
    return {segment, Transfer::Operation::kRead, me.memory.data() + here, owner.address() + there,
            size_bytes};
  }
  std::optional<size_t> wrong_there(size_t there, size_t size_bytes, uint64_t seed, size_t place) {
    return wrong_at({owner.memory.data() + there, size_bytes}, seed, place);
  }

  Side owner, me;
  Transfer::Buffer buffer{};
  Transfer::Segment segment{};
};

// ---- Memory that comes and goes ----

/// What the owner has granted before it took the memory back is known to this side for longer.
TEST_F(TransferCorners, MemoryThatIsRegisteredAgainWithOtherBordersIsWritten) {
  const Transfer::Rights both{true, true};
  const auto small = owner.add(1 << 20, 1 << 20, both);
  EXPECT_EQ(me.run(write(1 << 20, 4096)), Cause::kDone);
  ASSERT_TRUE(owner.transfer.unregister_memory(small, kLimit).ok());
  const auto longer = owner.add(1 << 20, 2 << 20, both);
  EXPECT_EQ(me.run(write((2 << 20) + 4096, 4096, 64)), Cause::kDone);
  EXPECT_EQ(wrong_there((2 << 20) + 4096, 4096, 1, 64), std::nullopt);
  ASSERT_TRUE(owner.transfer.unregister_memory(longer, kLimit).ok());
  owner.add(0, kBytes, both);  // it begins before
  EXPECT_EQ(me.run(write((3 << 20) + 4096, 4096, 128)), Cause::kDone);
  EXPECT_EQ(wrong_there((3 << 20) + 4096, 4096, 1, 128), std::nullopt);
}

/// What is registered now counts, not what was when the segment was opened: a copy of all of it at
/// a stretch would hold the engine up.
TEST(TransferOwnSegment, HasTheBordersThatItsMemoryHasNow) {
  constexpr size_t kAllBytes = 32 << 20;
  auto transfer = Transfer::open({}).value();
  std::vector<std::byte> memory(kAllBytes), copy(kAllBytes);
  ASSERT_TRUE(transfer.register_memory(copy.data(), kAllBytes, {}).ok());
  const auto small = transfer.register_memory(memory.data(), 1 << 20, {true, false}).value();
  const auto own = transfer.open_segment(transfer.name().value(), 10s).value();
  ASSERT_TRUE(transfer.unregister_memory(small, 10s).ok());
  ASSERT_TRUE(transfer.register_memory(memory.data(), kAllBytes - 4096, {true, false}).ok());
  fill(memory, 3);
  const auto read = [&](size_t size) {
    const auto address = reinterpret_cast<uint64_t>(memory.data());
    return transfer
        .submit_and_wait({{own, Transfer::Operation::kRead, copy.data(), address, size}}, 20s)
        .value()
        .outcomes->front();
  };
  EXPECT_TRUE(read(kAllBytes - 4096).is_done());
  EXPECT_EQ(wrong_at({copy.data(), kAllBytes - 4096}, 3), std::nullopt);
  const auto report = nlohmann::json::parse(transfer.report(Transfer::Form::kJson).value());
  EXPECT_GT(report["braid_transfer"]["slices"], 8);
  const Transfer::Outcome beyond = read(kAllBytes);
  EXPECT_EQ(beyond.cause, Cause::kOutside);
  EXPECT_EQ(beyond.delivered_bytes, 0u);
}

TEST_F(TransferCorners, UnregisterIsAskedAgainUntilTheMemoryIsFree) {
  const auto shared = owner.add(0, kBytes, {true, true});
  EXPECT_EQ(me.run(write(0, 4096)), Cause::kDone);
  Status gone;
  EXPECT_TRUE(eventually([&] {
    gone = owner.transfer.unregister_memory(shared, 0s);
    if (!gone.ok()) {
      EXPECT_NE(gone.message().find("may still write"), std::string::npos) << gone.message();
    }
    return gone.ok();
  })) << gone.message();
  EXPECT_FALSE(owner.transfer.unregister_memory(shared, 0s).ok()) << "it is gone";
}

// ---- Notifications ----

TEST_F(TransferCorners, ANotificationComesThoughItsSegmentIsClosedBehindTheBatch) {
  owner.add(0, kBytes, {true, true});
  for (const bool is_closed_early : {false, true}) {
    const std::string name = is_closed_early ? "closed early" : "closed late";
    const auto batch =
        me.transfer.submit({write(0, 2 << 20)}, Transfer::Notification{segment, name}).value();
    const auto close = [&] { EXPECT_TRUE(me.transfer.close_segment(segment).ok()); };
    if (is_closed_early) close();
    EXPECT_TRUE(me.transfer.wait(batch, kLimit).value());
    if (!is_closed_early) close();
    const auto told = owner.transfer.next_notification(kLimit).value();
    ASSERT_TRUE(told.has_value()) << name;
    EXPECT_EQ(told->name, name);
    segment = me.transfer.open_segment(owner.transfer.name().value(), kLimit).value();
  }
}

/// Its owner has no request and no segment any more while the batch moves bytes of another one.
/// Afterwards nothing is kept of it.
TEST_F(TransferCorners, ANotificationComesToOneThatIsNotMovedTo) {
  Side other;
  other.add(0, kBytes, {true, true});
  Transfer::Request one = write(0, kBytes);
  one.segment = me.transfer.open_segment(other.transfer.name().value(), kLimit).value();
  one.address = other.address();
  const auto batch = me.transfer
                         .submit(std::vector<Transfer::Request>(16, one),
                                 Transfer::Notification{segment, "look there"})
                         .value();
  EXPECT_TRUE(me.transfer.close_segment(segment).ok());
  EXPECT_TRUE(me.transfer.wait(batch, kLimit).value());
  const auto told = owner.transfer.next_notification(kLimit).value();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->name, "look there");
  EXPECT_EQ(wrong_at(other.memory, 1), std::nullopt);
  EXPECT_TRUE(me.transfer.close_segment(one.segment).ok());
  std::string report;
  EXPECT_TRUE(eventually([&] {
    report = me.transfer.report(Transfer::Form::kJson).value();
    return report.find("\"ways\":[]") != std::string::npos;
  })) << report;
}

TEST_F(TransferCorners, ANotificationComesThoughTheEngineIsClosedBehindTheBatch) {
  owner.add(0, kBytes, {true, true});
  {
    Side other;
    other.add(0, kBytes);
    Transfer::Request one = write(0, 4096);
    one.segment = other.transfer.open_segment(owner.transfer.name().value(), kLimit).value();
    one.local = other.memory.data();
    const auto batch =
        other.transfer.submit({one}, Transfer::Notification{one.segment, "last words"}).value();
    EXPECT_TRUE(other.transfer.wait(batch, kLimit).value());
  }
  const auto told = owner.transfer.next_notification(kLimit).value();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->name, "last words");
}

TEST_F(TransferCorners, ANotificationForTheOwnSegmentComes) {
  const auto own = me.transfer.open_segment(me.transfer.name().value(), kLimit).value();
  const auto batch = me.transfer.submit({}, Transfer::Notification{own, "note to self"}).value();
  EXPECT_TRUE(me.transfer.wait(batch, kLimit).value());
  const auto told = me.transfer.next_notification(kLimit).value();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->name, "note to self");
  EXPECT_NE(me.transfer.name().value().find(told->from), std::string::npos);
}

/// Rather than to lose one without a word.
TEST_F(TransferCorners, ANotificationThatCannotBeToldIsRefusedAtOnce) {
  EXPECT_FALSE(me.transfer.submit({}, Transfer::Notification{Transfer::Segment{99}, "x"}).ok());
  const auto own = me.transfer.open_segment(me.transfer.name().value(), kLimit).value();
  const Transfer::Notification note{own, "x"};
  size_t taken = 0, told = 0;
  while (taken < 10'000 && me.transfer.submit({}, note).ok()) ++taken;
  EXPECT_LT(taken, 10'000u) << "nobody takes them";
  while (me.transfer.next_notification(0s).value()) ++told;
  EXPECT_EQ(told, taken);
  EXPECT_TRUE(me.transfer.submit({}, note).ok());
}

// ---- Ends ----

TEST_F(TransferCorners, WhatIsForgottenIsNotToldAnyMore) {
  (void)me.transfer.event_descriptor().value();
  std::vector<Transfer::Batch> batches;
  for (int i = 0; i < 3; ++i) batches.push_back(me.transfer.submit({}).value());
  EXPECT_TRUE(me.transfer.forget(batches[1]).ok());
  EXPECT_EQ(me.transfer.take_ended().value(), (std::vector{batches[0], batches[2]}));
  const auto last = me.transfer.submit({}).value();
  EXPECT_TRUE(me.transfer.forget(last).ok());
  pollfd told{me.transfer.event_descriptor().value(), POLLIN, 0};
  EXPECT_EQ(poll(&told, 1, 0), 0) << "nothing is to be taken";
}

// ---- Arguments ----

TEST_F(TransferCorners, AnOperationOrUrgencyThatIsNoneIsRefusedAndMovesNothing) {
  owner.add(0, kBytes, {true, true});
  braid_transfer* transfer = me.transfer.get();
  braid_transfer_request request{static_cast<uint64_t>(segment),
                                 me.memory.data(),
                                 owner.address(),
                                 64,
                                 7,
                                 BRAID_TRANSFER_BULK,
                                 0};
  uint64_t batch = 0;
  size_t needed_bytes = 0;
  EXPECT_EQ(braid_transfer_submit(transfer, &request, 1, nullptr, &batch), BRAID_ERROR_ARGUMENT);
  EXPECT_NE(std::strstr(braid_transfer_last_error(), "operation 7"), nullptr);
  EXPECT_EQ(braid_transfer_explain_request(transfer, &request, BRAID_TRANSFER_TEXT, nullptr, 0,
                                           &needed_bytes),
            BRAID_ERROR_ARGUMENT);
  request.operation = BRAID_TRANSFER_READ;
  request.urgency = -1;
  EXPECT_EQ(braid_transfer_submit(transfer, &request, 1, nullptr, &batch), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(braid_transfer_explain(transfer, request.segment, 64, 2, BRAID_TRANSFER_TEXT, nullptr,
                                   0, &needed_bytes),
            BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(wrong_at(me.memory, 1), std::nullopt);
}

TEST_F(TransferCorners, AListThatIsNullAndNotEmptyIsRefused) {
  owner.add(0, kBytes, {true, true});
  braid_transfer* transfer = me.transfer.get();
  size_t count = 0;
  uint64_t batch = 0;
  // The list is of when the segment was opened.
  segment = me.transfer.open_segment(owner.transfer.name().value(), kLimit).value();
  EXPECT_EQ(braid_transfer_ranges(transfer, static_cast<uint64_t>(segment), nullptr, 1, &count),
            BRAID_ERROR_ARGUMENT);
  braid_transfer_request request{static_cast<uint64_t>(segment),
                                 me.memory.data(),
                                 owner.address(),
                                 64,
                                 BRAID_TRANSFER_READ,
                                 BRAID_TRANSFER_BULK,
                                 0};
  ASSERT_EQ(braid_transfer_submit(transfer, &request, 1, nullptr, &batch), BRAID_OK);
  EXPECT_EQ(braid_transfer_outcomes(transfer, batch, 0, nullptr, 1, &count), BRAID_ERROR_ARGUMENT);
  const braid_transfer_notification note{static_cast<uint64_t>(segment), "x", nullptr, 5};
  EXPECT_EQ(braid_transfer_submit(transfer, nullptr, 0, &note, &batch), BRAID_ERROR_ARGUMENT);
  braid_transfer_options options{};
  options.struct_bytes = sizeof options;
  options.address_count = 1;
  braid_transfer* other = nullptr;
  EXPECT_EQ(braid_transfer_open(&options, &other), BRAID_ERROR_ARGUMENT);
  const char* const none = nullptr;
  options.addresses = &none;
  EXPECT_EQ(braid_transfer_open(&options, &other), BRAID_ERROR_ARGUMENT);
  EXPECT_EQ(other, nullptr);
}

TEST_F(TransferCorners, ASegmentThatIsNotThereIsNeitherAFileNorWithoutAWay) {
  const Transfer::Segment none{99};
  for (const Status& wrong :
       {me.transfer.file_bytes(none).status(),
        me.transfer.explain(none, 64, Transfer::Urgency::kBulk, Transfer::Form::kText).status()}) {
    EXPECT_EQ(Transfer::cause_of(wrong), Cause::kNoSegment) << wrong.message();
    EXPECT_NE(wrong.message().find("no such segment"), std::string::npos) << wrong.message();
  }
  const Status memory = me.transfer.file_bytes(segment).status();
  EXPECT_EQ(Transfer::cause_of(memory), Cause::kNoCause);
  EXPECT_NE(memory.message().find("no file"), std::string::npos) << memory.message();
}

/// All addresses are registered, so that new memory overlaps.
TEST(TransferAllocate, MemoryThatCannotBeRegisteredIsNotHandedOut) {
  Side side;
  constexpr uint64_t kFirst = 1 << 16, kEnd = 1ull << 47;
  ASSERT_TRUE(
      side.transfer.register_memory(reinterpret_cast<void*>(kFirst), kEnd - kFirst - (1 << 16), {})
          .ok());
  void* memory = nullptr;
  uint64_t buffer = 0;
  EXPECT_NE(braid_transfer_allocate_memory(side.transfer.get(), 4096, 0, &memory, &buffer),
            BRAID_OK);
  EXPECT_EQ(memory, nullptr);
}

/// Of a program that was built with an older header, and with a newer one.
TEST(TransferOptions, AShorterStructIsTakenAndALongerOneUnlessItAsksForWhatIsNotKnown) {
  struct {
    braid_transfer_options known{};
    uint64_t later_field = 0;
  } options;
  const char* const address = "127.0.0.1";
  options.known.addresses = &address;
  options.known.address_count = 1;
  const auto open = [&](size_t struct_bytes) {
    options.known.struct_bytes = struct_bytes;
    braid_transfer* opened = nullptr;
    const braid_status status = braid_transfer_open(&options.known, &opened);
    EXPECT_EQ(opened != nullptr, status == BRAID_OK) << braid_transfer_last_error();
    braid_transfer_close(opened);
    return status;
  };
  const std::string name = "shorter-" + std::to_string(getpid());
  options.known.name = name.c_str();
  options.known.store = "nowhere://";
  EXPECT_NE(open(sizeof options.known), BRAID_OK);
  EXPECT_EQ(open(offsetof(braid_transfer_options, store)), BRAID_OK) << "it has no store";
  options.known.store = nullptr;
  EXPECT_EQ(open(sizeof options), BRAID_OK);
  options.later_field = 1;
  EXPECT_EQ(open(sizeof options), BRAID_ERROR_ARGUMENT);
  EXPECT_NE(std::strstr(braid_transfer_last_error(), "does not know"), nullptr);
  for (const size_t mistake : {size_t{0}, sizeof &options}) {
    EXPECT_EQ(open(mistake), BRAID_ERROR_ARGUMENT);
    EXPECT_NE(std::strstr(braid_transfer_last_error(), "sizeof(braid_transfer_options)"), nullptr);
  }
  EXPECT_EQ(open(~size_t{0}), BRAID_ERROR_ARGUMENT) << "nobody has set it";
}

TEST_F(TransferCorners, ADeadlineThatHasPassedIsOne) {
  owner.add(0, kBytes, {true, true});
  EXPECT_EQ(me.run(write(0, 4096)), Cause::kDone);
  Transfer::Request late = write(0, kBytes);
  for (const Transfer::Limit passed : {Transfer::Limit(-1), Transfer::Limit(-5s)}) {
    late.limit = passed;
    EXPECT_EQ(me.run(late), Cause::kDeadline);
  }
}

/// Writes so small that they would be done at once.
TEST(TransferDeadlines, NoByteMovesOnceItHasPassedWhateverTheWay) {
  const std::vector<std::vector<std::string>> ways = {
      {"mapped", "tcp;ofi_rxm"}, {"shm"}, {"tcp;ofi_rxm"}};
  for (const std::vector<std::string>& providers : ways) {
    SCOPED_TRACE(providers.front());
    std::vector<std::string> arguments = {"bytes=4096"};
    for (const std::string& provider : providers) arguments.push_back("provider=" + provider);
    Owner owner(arguments);
    Transfer::Options options;
    options.providers = providers;
    Initiator me(owner, options, 4096);
    owner.fill(Owner::kBoth, 1);
    fill(me.memory, 2);
    Transfer::Request late = me.write(owner.addresses[Owner::kBoth], 64);
    late.limit = Transfer::Limit(-1);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(me.run({late}), std::vector{Cause::kDeadline});
    EXPECT_EQ(owner.check(Owner::kBoth, 1, 0, 4096), "right");
  }
}

}  // namespace
}  // namespace braid::transfer::test
