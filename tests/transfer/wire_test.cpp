// What comes from outside, and what is looked up in this process: ranges, names, messages,
// descriptions, notifications.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "transfer/buffers.h"
#include "transfer/description.h"
#include "transfer/directory/names.h"
#include "transfer/notifications.h"
#include "transfer/rail_messages.h"
#include "transfer/some_answer.h"

namespace braid::transfer {
namespace {

TEST(TransferBuffers, NeverMergeAndNeverOverflow) {
  std::vector<std::byte> memory(300);
  Buffers buffers;
  const auto at = [&](size_t offset, size_t size) {
    return MutableBytes(memory.data() + offset, size);
  };
  const uint64_t first = buffers.add(at(0, 100), kMayRead).value();
  const uint64_t second = buffers.add(at(100, 100), kMayWrite).value();
  EXPECT_FALSE(buffers.add(at(50, 10), kMayRead).ok());
  EXPECT_FALSE(buffers.add(at(99, 2), kMayRead).ok());
  EXPECT_FALSE(buffers.add(at(150, 100), kMayRead).ok());
  EXPECT_FALSE(buffers.add({}, kMayRead).ok());
  const auto base = reinterpret_cast<uint64_t>(memory.data());
  const Buffer* found = nullptr;
  EXPECT_EQ(check(buffers, base, 100, kMayRead, found), Cause::kNone);
  EXPECT_EQ(found->id, first);
  EXPECT_EQ(check(buffers, base + 100, 100, kMayWrite, found), Cause::kNone);
  EXPECT_EQ(found->id, second);
  EXPECT_EQ(check(buffers, base + 50, 51, kMayRead, found), Cause::kOutside);
  EXPECT_EQ(check(buffers, base, 100, kMayWrite, found), Cause::kNotAllowed);
  EXPECT_EQ(check(buffers, base + 200, 1, kMayRead, found), Cause::kOutside);
  EXPECT_EQ(check(buffers, base - 1, 2, kMayRead, found), Cause::kOutside);
  EXPECT_EQ(check(buffers, base + 10, ~uint64_t{0}, kMayRead, found), Cause::kOutside);
  EXPECT_EQ(check(buffers, ~uint64_t{0}, 2, kMayRead, found), Cause::kOutside);
  buffers.remove(first);
  EXPECT_EQ(check(buffers, base, 1, kMayRead, found), Cause::kOutside);
}

TEST(TransferNamesParsed, OnlyWhatIsWhole) {
  EXPECT_TRUE(parse_name("braid://10.0.0.7:4750").ok());
  EXPECT_EQ(parse_name("braid://[::1]:4750").value().at.host, "::1");
  const Incarnation who{0x0123456789abcdef, 7};
  const Name name = parse_name(write_name({"10.0.0.7", 1}, who)).value();
  EXPECT_EQ(name.incarnation, who);
  for (const char* text :
       {"", "a b", ".x", "braid://", "braid://x", "braid://:1", "braid://x:", "braid://x:0",
        "braid://x:70000", "braid://x:1/12", "braid://x:1x", "braid://[]:1"})
    EXPECT_FALSE(parse_name(text).ok()) << text;
  EXPECT_FALSE(parse_name(std::string_view("a\0b", 3)).ok());
  // Within the program zeros mean any engine: who names one never means that.
  const auto nobody = parse_name("braid://x:1/" + std::string(32, '0'));
  EXPECT_NE(nobody.status().message().find("incarnation"), std::string::npos);
}

std::vector<RailMessage> all_messages() {
  return {Hello{{1, 2}, 3, 4},
          GrantRequest{1, 2, 3},
          GrantAnswer{1, Cause::kOutside, 3, 4, std::vector<std::byte>(100)},
          Lend{1, std::vector<std::byte>(3)},
          Lent{1, Cause::kTooMuch},
          Reads{std::vector<ReadRequest>(kReadsInMessage)},
          Refused{{{1, Cause::kNotAllowed}}},
          FenceRequest{1, 2, 3},
          FenceAnswer{1},
          Ping{1},
          Pong{1},
          Leaving{},
          FileOpen{1, kMayRead, "a/b"},
          FileOpened{1, Cause::kNone, 2, 3},
          StageRequest{},
          StageAnswer{Cause::kNone, 5, std::vector<std::byte>(7)},
          FileWrite{1, 2, 3, 4, 5},
          FileWritten{1, Cause::kFileError},
          Notification{1, "name", std::vector<std::byte>(9)},
          NotificationAnswer{1, Cause::kNone},
          ReadGivenUp{1},
          WriteGivenUp{1},
          SmallRead{1, 2, 3},
          SmallReadAnswer{1, Cause::kNone}};
}

TEST(TransferMessages, AreReadAsTheyWereWrittenAndFitIntoFabrics) {
  const auto all = all_messages();
  ASSERT_EQ(all.size(), std::variant_size_v<RailMessage>);
  for (const RailMessage& message : all) {
    const auto bytes = encode(message);
    EXPECT_LE(bytes.size(), fabric::kPayloadBytesMax);
    const auto read = decode_rail_message(bytes);
    ASSERT_TRUE(read.ok()) << message.index();
    EXPECT_EQ(encode(read.value()), bytes);
  }
}

TEST(TransferMessages, CutOffLongerAndAlteredOnesAreErrorsOrOtherMessages) {
  std::mt19937_64 random(testing::UnitTest::GetInstance()->random_seed());
  for (const RailMessage& message : all_messages()) {
    const auto bytes = encode(message);
    for (size_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(decode_rail_message(Bytes(bytes).first(size)).ok()) << message.index();
    auto longer = bytes;
    longer.push_back({});
    EXPECT_FALSE(decode_rail_message(longer).ok()) << message.index();
    for (int turn = 0; turn < 300; ++turn) {
      auto altered = bytes;
      for (uint64_t i = 0; i <= random() % 4; ++i)
        altered[random() % altered.size()] = static_cast<std::byte>(random());
      const auto read = decode_rail_message(altered);
      EXPECT_TRUE(!read.ok() || encode(read.value()).size() == altered.size());
    }
  }
}

/// A request that has ended with a cause that nobody knows would be taken for one that has not.
TEST(TransferMessages, ACauseThatIsNoneIsAnError) {
  const auto none = static_cast<Cause>(100), next = static_cast<Cause>(int(kLastCause) + 1);
  for (const Cause cause : {none, next}) {
    for (const RailMessage& message : std::vector<RailMessage>{
             GrantAnswer{1, cause, 3, 4, {}}, Lent{1, cause}, Refused{{{1, cause}}},
             FileOpened{1, cause, 2, 3}, StageAnswer{cause, 5, {}}, FileWritten{1, cause},
             NotificationAnswer{1, cause}, SmallReadAnswer{1, cause}})
      EXPECT_FALSE(decode_rail_message(encode(message)).ok()) << message.index();
  }
  for (const Cause cause : {kLastCause, Cause::kNoSpace, Cause::kReadOnly, Cause::kDeviceError})
    EXPECT_TRUE(decode_rail_message(encode(Lent{1, cause})).ok()) << cause_name(cause);
  EXPECT_FALSE(decode_rail_message(encode(Refused{{{1, Cause::kNone}}})).ok());
}

TEST(TransferDescription, IsReadAsItWasWrittenAndNotWhenAByteIsAltered) {
  const fabric::Secret none;
  const auto bytes = encode(some_answer(), none);
  const auto read = decode_answer(bytes, none).value();
  EXPECT_EQ(encode(read, none), bytes);
  EXPECT_EQ(read.description.rails.front().gbps, 12.5);
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto altered = bytes;
    altered[i] ^= std::byte{1};
    EXPECT_FALSE(decode_answer(altered, none).ok()) << i;
    EXPECT_FALSE(decode_answer(Bytes(bytes).first(i), none).ok()) << i;
  }
  const std::vector<std::byte> key(32, std::byte{5});
  const fabric::Secret secret = fabric::Secret::of(key).value();
  EXPECT_FALSE(decode_answer(bytes, secret).ok());
  EXPECT_FALSE(decode_answer(encode(some_answer(), secret), none).ok());
  EXPECT_TRUE(decode_answer(encode(some_answer(), secret), secret).ok());
  EXPECT_FALSE(decode_question(bytes, none).ok());
}

/// Version 1 has no places: a rail's node alone. Both are read by this version, and an older one is
/// answered in its own.
TEST(TransferDescription, IsToldInTheVersionThatWasAskedFor) {
  const fabric::Secret none;
  const auto old = encode(some_answer(), none, 1);
  EXPECT_LT(old.size(), encode(some_answer(), none).size());
  const Description read = decode_answer(old, none).value().description;
  EXPECT_EQ(read.rails.front().place, (Place{false, 1, -1, -1}));
  EXPECT_TRUE(read.places.empty());
  EXPECT_EQ(read.ranges.size(), 2u);
  EXPECT_EQ(read.exports.front().name, "kv");
  const Description now = decode_answer(encode(some_answer(), none), none).value().description;
  EXPECT_EQ(now.rails.front().place, (Place{false, 1, 3, 2}));
  EXPECT_EQ(now.places, some_answer().description.places);
  EXPECT_EQ(now.ranges.back().place, 1);
  EXPECT_EQ(now.distances, some_answer().description.distances);
  const auto before = encode(some_answer(), none, 3);
  EXPECT_EQ(decode_answer(before, none).value().description.distances, topology::NumaDistances{})
      << "version 4 brought them";
  Question question;
  question.version = 1;
  EXPECT_EQ(decode_question(encode(question, none), none).value().version, 1);
  question.version = kVersion + 1;
  EXPECT_FALSE(decode_question(encode(question, none), none).ok());
}

/// Over links that lose, repeat and reorder, each comes once and in order.
TEST(TransferNotifications, ComeOnceAndInOrder) {
  const auto seed = static_cast<uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  NotificationSender sender;
  NotificationReceiver receiver;
  std::vector<Notification> wire;
  std::vector<NotificationAnswer> answers;
  std::vector<std::string> got;
  uint64_t now_ns = 1;
  int said = 0;
  while (got.size() < 100) {
    if (said < 100 && random() % 2 == 0) {
      EXPECT_TRUE(sender.add(std::to_string(said++), {}));
    }
    if (random() % 10 == 0) sender.say_all_again();
    for (const Notification& each : sender.due(now_ns)) wire.push_back(each);
    std::shuffle(wire.begin(), wire.end(), random);
    if (!wire.empty() && random() % 3 != 0) {
      NotificationAnswer answer;
      for (const Notification& each : receiver.take(wire.back(), random() % 5 != 0, answer))
        got.push_back(each.name);
      if (random() % 2 == 0) answers.push_back(answer);
    }
    if (!wire.empty() && random() % 3 == 0) wire.pop_back();
    while (!answers.empty()) {
      sender.answered(answers.back());
      answers.pop_back();
    }
    now_ns += 50'000'000;
    ASSERT_LT(now_ns, 50'000'000ull * 1'000'000) << "they do not come";
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], std::to_string(i));
}

}  // namespace
}  // namespace braid::transfer
