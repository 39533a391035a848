// Two processes with default settings: every byte moves as it was asked, every bad input has a
// cause of its own, and a peer that ends fails its requests and nothing else.
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <nlohmann/json.hpp>

#include "support/wake_ups.h"
#include "transfer/owner.h"

namespace braid::transfer::test {
namespace {

using Cause = Transfer::Cause;
constexpr size_t kBytes = 4 << 20;

class TransferTest : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  static std::vector<std::string> arguments() {
    std::vector<std::string> all;
    for (const std::string& provider : GetParam()) all.push_back("provider=" + provider);
    return all;
  }
  static Transfer::Options options() {
    Transfer::Options options;
    options.providers = GetParam();
    return options;
  }
};

TEST_P(TransferTest, BytesAreWrittenAndReadBack) {
  Owner owner(arguments());
  Initiator me(owner, options());
  fill(me.memory, 1);
  EXPECT_EQ(me.run({me.write(owner.addresses[Owner::kBoth], kBytes)}), std::vector{Cause::kDone});
  EXPECT_EQ(owner.check(Owner::kBoth, 1, 0, kBytes), "right");
  owner.fill(Owner::kBoth, 2);
  EXPECT_EQ(me.run({me.read(owner.addresses[Owner::kBoth], kBytes)}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at(me.memory, 2), std::nullopt);
}

/// Sizes around those of pages and slices, at odd places, in one batch of reads and writes.
TEST_P(TransferTest, ABatchOfAllSizesMovesEveryByteAndNoOther) {
  Owner owner(arguments());
  Initiator me(owner, options(), 2 * kBytes);
  owner.fill(Owner::kRead, 3);
  owner.fill(Owner::kBoth, 4);
  fill(std::span(me.memory).first(kBytes), 5);
  std::vector<Transfer::Request> requests;
  std::vector<std::pair<size_t, size_t>> places;
  size_t at = 1;
  for (const size_t size : {1, 7, 64, 4095, 4096, 65535, 65536, 65537, 300'001, 1 << 20}) {
    requests.push_back(me.write(owner.addresses[Owner::kBoth] + at, size, at));
    requests.push_back(me.read(owner.addresses[Owner::kRead] + at, size, kBytes + at));
    places.push_back({at, size});
    at += size + 3;
  }
  requests.push_back(me.read(owner.addresses[Owner::kRead], 0, 0));
  EXPECT_EQ(me.run(requests), std::vector(requests.size(), Cause::kDone));
  size_t end = 0;
  for (const auto& [place, size] : places) {
    EXPECT_EQ(owner.ask("check 2 4 " + std::to_string(end) + " 0"), "right");
    const std::span<const std::byte> read(me.memory.data() + kBytes + place, size);
    EXPECT_EQ(wrong_at(read, 3, place), std::nullopt) << size;
    const std::span<const std::byte> gap(me.memory.data() + kBytes + end, place - end);
    EXPECT_EQ(std::vector(gap.begin(), gap.end()), std::vector<std::byte>(gap.size())) << size;
    end = place + size;
  }
  // What is read back of the owner's is its own pattern, but for what was written.
  std::vector<std::byte> expected(kBytes);
  fill(expected, 4);
  for (const auto& [place, size] : places)
    std::memcpy(expected.data() + place, me.memory.data() + place, size);
  EXPECT_EQ(me.run({me.read(owner.addresses[Owner::kBoth], kBytes, kBytes)}),
            std::vector{Cause::kDone});
  EXPECT_EQ(std::memcmp(me.memory.data() + kBytes, expected.data(), kBytes), 0);
}

TEST_P(TransferTest, ABatchInOneCall) {
  Owner owner(arguments());
  Initiator me(owner, options());
  fill(me.memory, 1);
  const auto ended = me.transfer.submit_and_wait({me.write(owner.addresses[Owner::kBoth], kBytes),
                                                  me.write(owner.addresses[Owner::kRead], 64)},
                                                 Initiator::kLimit);
  ASSERT_TRUE(ended.ok() && ended.value().outcomes && !ended.value().batch);
  ASSERT_EQ(ended.value().outcomes->size(), 2u);
  EXPECT_EQ((*ended.value().outcomes)[0].cause, Cause::kDone);
  EXPECT_EQ((*ended.value().outcomes)[0].delivered_bytes, kBytes);
  EXPECT_EQ((*ended.value().outcomes)[1].cause, Cause::kNotAllowed);
  EXPECT_EQ(owner.check(Owner::kBoth, 1, 0, kBytes), "right");

  fill(me.memory, 2);
  const std::vector<Transfer::Request> many(64, me.write(owner.addresses[Owner::kBoth], kBytes));
  const auto late = me.transfer.submit_and_wait(many, 0s);
  ASSERT_TRUE(late.ok() && late.value().batch && !late.value().outcomes) << "it goes on";
  for (const auto& outcome : me.end(*late.value().batch)) EXPECT_EQ(outcome.cause, Cause::kDone);
  EXPECT_EQ(owner.check(Owner::kBoth, 2, 0, kBytes), "right");

  Transfer::Request wrong = me.read(owner.addresses[Owner::kBoth], 64);
  wrong.operation = static_cast<Transfer::Operation>(7);
  EXPECT_EQ(me.transfer.submit_and_wait({wrong}, 10s).status().code(), BRAID_ERROR_ARGUMENT);
}

TEST_P(TransferTest, TheOwnerDecidesAndEachBadRequestFailsAlone) {
  Owner owner(arguments());
  Initiator me(owner, options());
  const auto& at = owner.addresses;
  owner.fill(Owner::kRead, 6);
  fill(me.memory, 7);
  std::vector<std::byte> foreign(64);
  Transfer::Request no_segment = me.read(at[Owner::kRead], 64);
  no_segment.segment = Transfer::Segment{12345};
  Transfer::Request not_registered = me.read(at[Owner::kRead], 64);
  not_registered.local = foreign.data();
  EXPECT_EQ(me.run({me.write(at[Owner::kRead], 64), me.read(at[Owner::kWrite], 64),
                    me.write(at[Owner::kNone], 64), me.read(at[Owner::kNone], 64),
                    me.read(at[Owner::kRead] + kBytes - 1, 64), me.write(at[Owner::kWrite] - 1, 64),
                    me.read(64, 64), me.read(~uint64_t{0} - 3, 64), no_segment, not_registered,
                    me.read(at[Owner::kRead], 64, kBytes - 1), me.read(at[Owner::kRead], 64, 1024),
                    me.write(at[Owner::kWrite], 64)}),
            (std::vector{Cause::kNotAllowed, Cause::kNotAllowed, Cause::kNotAllowed,
                         Cause::kNotAllowed, Cause::kOutside, Cause::kOutside, Cause::kOutside,
                         Cause::kOutside, Cause::kNoSegment, Cause::kLocalMemory,
                         Cause::kLocalMemory, Cause::kDone, Cause::kDone}));
  EXPECT_EQ(wrong_at(std::span(me.memory).subspan(1024, 64), 6), std::nullopt);
  EXPECT_EQ(owner.check(Owner::kRead, 6, 0, kBytes), "right") << "it may not be written";
  EXPECT_EQ(owner.check(Owner::kWrite, 7, 0, 64), "right");
}

TEST_P(TransferTest, AnOwnerThatIsKilledFailsItsRequestsSoonAndNoOthers) {
  auto lost = std::make_unique<Owner>(arguments());
  Owner other(arguments());
  Initiator me(*lost, options(), 64 << 20);
  const auto others = me.transfer.open_segment(other.name, Initiator::kLimit).value();
  std::vector<Transfer::Request> requests;
  for (size_t i = 0; i < 256; ++i) {
    requests.push_back(
        me.write(lost->addresses[Owner::kBoth] + i % 16 * (256 << 10), 256 << 10, i * (128 << 10)));
    requests.push_back(me.read(other.addresses[Owner::kRead], 4096, (48 << 20) + i * 4096));
    requests.back().segment = others;
  }
  other.fill(Owner::kRead, 8);
  const Transfer::Batch batch = me.submit(requests);
  lost->signal(SIGKILL);
  const auto begun = std::chrono::steady_clock::now();
  const auto outcomes = me.end(batch);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 15s);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (i % 2 == 1)
      EXPECT_EQ(outcomes[i].cause, Cause::kDone) << i;
    else
      EXPECT_TRUE(outcomes[i].cause == Cause::kPeerLost || outcomes[i].is_done())
          << Transfer::cause_name(outcomes[i].cause);
  }
  for (size_t i = 0; i < 256; ++i)
    EXPECT_EQ(wrong_at({me.memory.data() + (48 << 20) + i * 4096, 4096}, 8), std::nullopt);
  // What is mapped can be read until its owner is known to have ended.
  std::vector<Cause> last;
  EXPECT_TRUE(eventually([&] {
    last = me.run({me.read(lost->addresses[Owner::kRead], 64)});
    return last == std::vector{Cause::kPeerLost};
  })) << Transfer::cause_name(last.front());
}

/// However many rails it has, whose engines beat at their own times.
TEST_P(TransferTest, AnEngineToWhichNothingHappensWakesRarely) {
  constexpr uint64_t kWakeUpsMax = 32;
  std::vector<std::string> words = arguments();
  Transfer::Options several = options();
  several.addresses = {"127.0.0.1", "127.0.0.2", "127.0.0.3"};
  for (const std::string& address : several.addresses) words.push_back("address=" + address);
  const Owner owner(words);
  const Initiator me(owner, several);
  EXPECT_TRUE(braid::test::eventually(
      [] { return braid::test::most_wake_ups_in_a_second() <= kWakeUpsMax; }));
}

INSTANTIATE_TEST_SUITE_P(Providers, TransferTest,
                         testing::Values(std::vector<std::string>{},
                                         std::vector<std::string>{"tcp;ofi_rxm"},
                                         std::vector<std::string>{"shm"}),
                         [](const auto& providers) {
                           return providers.param.empty() ? std::string("Default")
                                                          : providers.param.front().substr(0, 3);
                         });

TEST(TransferOwnSegment, IsReadAndWrittenLikeAnyOther) {
  auto transfer = Transfer::open({}).value();
  const auto own = transfer.open_segment(transfer.name().value(), 10s).value();
  const auto shared = transfer.allocate_memory(1 << 20, {true, false}).value();
  const auto mine = transfer.allocate_memory(1 << 20, {}).value();
  fill({static_cast<std::byte*>(shared.memory), 1 << 20}, 9);
  const auto there = reinterpret_cast<uint64_t>(shared.memory);
  const auto batch = transfer
                         .submit({{own, Transfer::Operation::kRead, mine.memory, there, 1 << 20},
                                  {own, Transfer::Operation::kWrite, mine.memory, there, 1 << 20}})
                         .value();
  ASSERT_TRUE(transfer.wait(batch, 10s).value());
  const auto outcomes = transfer.outcomes(batch).value();
  EXPECT_EQ(outcomes[0].cause, Cause::kDone);
  EXPECT_EQ(outcomes[1].cause, Cause::kNotAllowed);
  EXPECT_EQ(wrong_at({static_cast<std::byte*>(mine.memory), 1 << 20}, 9), std::nullopt);
}

TEST(TransferNames, ABareNameIsFoundOnThisHostAndAnOldIncarnationIsNot) {
  const std::string name = "test-" + std::to_string(getpid());
  auto owner = std::make_unique<Owner>(std::vector<std::string>{"name=" + name});
  auto transfer = Transfer::open({}).value();
  EXPECT_TRUE(transfer.open_segment(name, 10s).ok());
  const std::string where = owner->name.substr(0, owner->name.rfind('/'));
  EXPECT_TRUE(transfer.open_segment(where, 10s).ok());
  const auto stranger = transfer.open_segment(where + "/" + std::string(32, '7'), 10s);
  ASSERT_FALSE(stranger.ok());
  EXPECT_NE(stranger.status().message().find("another engine"), std::string::npos);
  EXPECT_EQ(Transfer::cause_of(stranger.status()), Cause::kNoSegment);
  const auto cause = [&](const std::string& wanted) {
    const auto opened = transfer.open_segment(wanted, 2s);
    EXPECT_FALSE(opened.ok()) << wanted;
    return Transfer::cause_of(opened.status());
  };
  owner.reset();
  EXPECT_EQ(cause(name), Cause::kNoSegment) << "a name whose engine is gone";
  EXPECT_EQ(cause(where), Cause::kNoSegment) << "nobody listens";
  EXPECT_EQ(cause("no such name"), Cause::kNoCause) << "it is no name at all";
  EXPECT_EQ(cause("braid://127.0.0.1:x"), Cause::kNoCause);
}

/// A file with a secret of that letter. Removed at the end.
class SecretFile {
 public:
  explicit SecretFile(char letter)
      : path(testing::TempDir() + "/secret" + letter + std::to_string(getpid())) {
    FILE* file = fopen(path.c_str(), "w");
    fputs(std::string(32, letter).c_str(), file);
    fclose(file);
    chmod(path.c_str(), 0600);
  }
  ~SecretFile() { remove(path.c_str()); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;

  const std::string path;
};

Transfer open_with(const SecretFile& secret) {
  Transfer::Options options;
  options.secret_file = secret.path;
  return Transfer::open(options).value();
}

TEST(TransferNames, TheReportSaysHowManyHaveAskedForTheEngineAndHowManyWereRefused) {
  const SecretFile right('c'), wrong('d');
  Transfer owner = open_with(right), friendly = open_with(right), stranger = open_with(wrong);
  ASSERT_TRUE(friendly.open_segment(owner.name().value(), 20s).ok());
  ASSERT_FALSE(stranger.open_segment(owner.name().value(), 20s).ok());
  const std::string report = owner.report(Transfer::Form::kJson).value();
  const nlohmann::json said = nlohmann::json::parse(report).at("braid_transfer");
  EXPECT_GE(said.at("questions_answered"), 1) << report;
  EXPECT_GE(said.at("questions_refused"), 1) << report;
  EXPECT_EQ(nlohmann::json::parse(friendly.report(Transfer::Form::kJson).value())
                .at("braid_transfer")
                .at("questions_refused"),
            0);
}

TEST(TransferNames, NobodyWithoutTheSecretLearnsMoreThanThat) {
  const SecretFile right_file('a'), wrong_file('b');
  const std::string &right = right_file.path, &wrong = wrong_file.path;
  Owner owner({"secret=" + right});
  for (const std::string& path : {std::string(), wrong}) {
    Transfer::Options options;
    options.secret_file = path;
    auto stranger = Transfer::open(options).value();
    const auto opened = stranger.open_segment(owner.name, 20s);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(Transfer::cause_of(opened.status()), Cause::kOtherSecret)
        << opened.status().message();
  }
  Transfer::Options options;
  options.secret_file = right;
  Initiator me(owner, options);
  owner.fill(Owner::kRead, 20);
  EXPECT_EQ(me.run({me.read(owner.addresses[Owner::kRead], kBytes)}), std::vector{Cause::kDone});
  EXPECT_EQ(wrong_at(me.memory, 20), std::nullopt);
}

TEST(TransferNames, SegmentsAreOpenedAndClosedAgainAndAgain) {
  Owner owner;
  Initiator me(owner);
  owner.fill(Owner::kRead, 21);
  for (int turn = 0; turn < 5; ++turn) {
    EXPECT_TRUE(me.transfer.close_segment(me.segment).ok());
    EXPECT_EQ(me.run({me.read(owner.addresses[Owner::kRead], 64)}), std::vector{Cause::kNoSegment});
    me.segment = me.transfer.open_segment(owner.name, Initiator::kLimit).value();
    EXPECT_EQ(me.run({me.read(owner.addresses[Owner::kRead], kBytes)}), std::vector{Cause::kDone});
    EXPECT_EQ(wrong_at(me.memory, 21), std::nullopt);
  }
}

TEST(TransferBatches, EndsAreToldThroughTheDescriptorAndNotificationsComeBehindTheData) {
  constexpr size_t kBatches = 5;
  Owner owner({"provider=tcp;ofi_rxm", "bytes=" + std::to_string(kBatches * kBytes)});
  Initiator me(owner, {}, kBatches * kBytes);
  const int descriptor = me.transfer.event_descriptor().value();
  for (size_t i = 0; i < kBatches; ++i) fill({&me.memory[i * kBytes], kBytes}, 10 + i);
  // The owner looks as soon as it hears, and nobody here waits for an end before.
  auto seen = std::async(std::launch::async, [&] {
    return owner.ask("watch 2 10 " + std::to_string(kBatches) + " " + std::to_string(kBytes));
  });
  std::vector<Transfer::Batch> batches;
  for (size_t i = 0; i < kBatches; ++i)
    batches.push_back(
        me.transfer
            .submit({me.write(owner.addresses[Owner::kBoth] + i * kBytes, kBytes, i * kBytes)},
                    Transfer::Notification{me.segment, "layer-" + std::to_string(i),
                                           std::vector<std::byte>(i)})
            .value());
  batches.push_back(me.transfer
                        .submit({me.write(owner.addresses[Owner::kRead], 64)},
                                Transfer::Notification{me.segment, "never"})
                        .value());
  std::vector<Transfer::Batch> ended;
  while (ended.size() < batches.size()) {
    pollfd awaited{descriptor, POLLIN, 0};
    ASSERT_EQ(poll(&awaited, 1, 60'000), 1);
    const auto taken = me.transfer.take_ended().value();
    ended.insert(ended.end(), taken.begin(), taken.end());
  }
  std::sort(ended.begin(), ended.end());
  std::sort(batches.begin(), batches.end());
  EXPECT_EQ(ended, batches);
  EXPECT_EQ(
      seen.get(),
      "layer-0 0 right; layer-1 1 right; layer-2 2 right; layer-3 3 right; layer-4 4 right; ");
  usleep(300'000);
  EXPECT_EQ(owner.ask("notified"), "nothing");
}

/// More reads than a link takes at once, from an owner that stands still: the first are under way,
/// the last has not begun.
TEST(TransferBatches, ACancelledOneAndOnePastItsDeadlineEnd) {
  Owner owner({"provider=shm", "provider=tcp;ofi_rxm"});  // what is mapped is read all the same
  Initiator me(owner, {}, 64 << 20);
  const auto there = owner.addresses[Owner::kRead];
  const auto last_cause = [&](Transfer::Batch batch) {
    return me.transfer.outcomes(batch).value().back().cause;
  };
  ASSERT_EQ(me.run({me.read(there, kBytes)}), std::vector{Cause::kDone});  // there is a link
  for (const Cause why : {Cause::kCancelled, Cause::kDeadline}) {
    std::vector<Transfer::Request> requests;
    for (size_t i = 0; i < 16; ++i) {
      requests.push_back(me.read(there, kBytes, i * kBytes));
      if (why == Cause::kDeadline) requests.back().limit = 20ms;
    }
    owner.stop();
    const Transfer::Batch batch = me.submit(requests);
    if (why == Cause::kCancelled) {
      EXPECT_TRUE(me.transfer.cancel(batch).ok());
    }
    EXPECT_TRUE(eventually([&] { return last_cause(batch) == why; }));
    owner.signal(SIGCONT);
    for (const auto& each : me.end(batch)) EXPECT_EQ(each.cause, why);
    fill(me.memory, 11);
    usleep(300'000);
    EXPECT_EQ(wrong_at(me.memory, 11), std::nullopt) << "nothing lands later";
  }
}

TEST(TransferMemory, IsThePeersNoMoreOnceItIsUnregistered) {
  Owner owner;
  Initiator me(owner);
  fill(me.memory, 12);
  const auto at = owner.addresses[Owner::kBoth];
  EXPECT_EQ(me.run({me.write(at, 4096), me.read(at, 4096)}),
            (std::vector{Cause::kDone, Cause::kDone}));
  EXPECT_EQ(owner.ask("unregister 2"), "gone");
  EXPECT_EQ(me.run({me.write(at, 4096), me.read(at, 4096)}),
            (std::vector{Cause::kOutside, Cause::kOutside}));
  EXPECT_TRUE(me.transfer.unregister_memory(me.buffer, 10s).ok());
  EXPECT_EQ(me.run({me.read(owner.addresses[Owner::kRead], 64)}), std::vector{Cause::kLocalMemory});
  me.buffer = me.transfer.register_memory(me.memory.data(), 4096, {}).value();
  EXPECT_EQ(me.run({me.read(owner.addresses[Owner::kRead], 64)}), std::vector{Cause::kDone});
}

}  // namespace
}  // namespace braid::transfer::test
