// What engines tell each other survives the way, and nothing that is cut, altered or made up does
// harm.
#include "fabric/wire.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <functional>

#include "fabric/order.h"

namespace braid::fabric {
namespace {

std::vector<std::byte> some_bytes(size_t count_max) {
  const auto numbers =
      *rc::gen::resize(static_cast<int>(count_max),
                       rc::gen::container<std::vector<uint8_t>>(rc::gen::arbitrary<uint8_t>()));
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < numbers.size() && i < count_max; ++i)
    bytes.push_back(std::byte{numbers[i]});
  return bytes;
}

uint64_t some_number() { return *rc::gen::arbitrary<uint64_t>(); }

Address some_address() {
  Address address{some_number(), {some_number() | 1, some_number() | 1}, {}};
  const int rails = *rc::gen::inRange(1, static_cast<int>(kRailsMax) + 1);
  for (int i = 0; i < rails; ++i)
    address.rails.push_back(
        {"tcp;ofi_rxm", some_bytes(kAddressBytesMax), {some_number(), some_number()}});
  return address;
}

Message some_message() {
  Message message{some_number(), some_number(), {}};
  message.session = {some_number(), some_number(), some_number()};
  const Doors doors = {{some_bytes(kAddressBytesMax), {some_bytes(30), some_bytes(30)}},
                       {some_bytes(kAddressBytesMax), {}}};
  const Origin origin{{some_number(), some_number()}, some_number(), some_number(), 4711};
  switch (*rc::gen::inRange(0, 10)) {
    case 0:
      message.body = Hello{some_address(), *rc::gen::arbitrary<uint32_t>(), doors, origin};
      break;
    case 1: message.body = Welcome{*rc::gen::arbitrary<uint32_t>(), doors, origin}; break;
    case 2: message.body = Data{some_bytes(kPayloadBytesMax)}; break;
    case 3: message.body = Credit{*rc::gen::arbitrary<uint32_t>()}; break;
    case 4: message.body = Revoke{some_number(), some_number()}; break;
    case 5: message.body = Beat{}; break;
    case 6: message.body = Goodbye{Goodbye::Why::kSilence, *rc::gen::arbitrary<bool>()}; break;
    case 7: message.body = RailsRetired{*rc::gen::arbitrary<uint32_t>(), some_number()}; break;
    case 8: message.body = DataWithBytes{some_bytes(kPayloadBytesBeforeMax), 0}; break;
    default: message.body = Revoked{some_number(), *rc::gen::arbitrary<bool>()};
  }
  return message;
}

Descriptor some_descriptor() {
  Descriptor descriptor{some_number(), some_number(), some_number(), some_number(), {}};
  for (int i = *rc::gen::inRange(0, static_cast<int>(kRailsMax) + 1); i > 0; --i)
    descriptor.rails.push_back({some_number(), some_number()});
  return descriptor;
}

void property(const char* what, const std::function<void()>& holds) {
  EXPECT_TRUE(rc::check(what, holds));
}

TEST(Wire, WhatIsWrittenIsRead) {
  property("decode(encode(x)) == x", [] {
    const Address address = some_address();
    RC_ASSERT(decode_address(encode(address)).value() == address);
    const Descriptor descriptor = some_descriptor();
    RC_ASSERT(decode_descriptor(encode(descriptor)).value() == descriptor);
    const Message message = some_message();
    RC_ASSERT(decode_message(encode(message)).value() == message);
  });
}

TEST(Wire, EveryMessageFitsItsBuffer) {
  Address address{1, {}, {}};
  address.rails.assign(
      kRailsMax,
      {std::string(kProviderBytesMax, 'x'), std::vector<std::byte>(kAddressBytesMax), {}});
  const Doors doors(kRailsMax, {std::vector<std::byte>(kAddressBytesMax), {}});
  EXPECT_LE(encode(Message{1, 2, Hello{address, 3, doors}}).size(), kMessageBytesMax);
  EXPECT_LE(encode(Message{1, 2, Data{std::vector<std::byte>(kPayloadBytesMax)}}).size(),
            kMessageBytesMax);
}

TEST(Wire, BytesThatFollowAMessageBelongToItAndAreNotSealed) {
  const Secret secret = Secret::of(std::vector<std::byte>(32, std::byte{7})).value();
  for (const size_t size_bytes : {size_t{1}, kFollowingBytesMax}) {
    const std::vector<std::byte> following(size_bytes, std::byte{5});
    const std::vector<std::byte> payload(kPayloadBytesBeforeMax, std::byte{6});
    const Message message{
        1, 2, DataWithBytes{payload, static_cast<uint16_t>(size_bytes)}, {3, 4, 5}};
    std::vector<std::byte> bytes = encode(message, secret, following);
    EXPECT_LE(bytes.size(), kMessageBytesMax);
    EXPECT_EQ(decode_message(bytes, secret).value(), message);
    EXPECT_TRUE(std::equal(following.begin(), following.end(), bytes.end() - size_bytes));
    for (size_t i = 6; i < bytes.size(); ++i) {
      bytes[i] ^= std::byte{1};
      EXPECT_EQ(decode_message(bytes, secret).ok(), i >= bytes.size() - size_bytes) << i;
      bytes[i] ^= std::byte{1};
    }
    bytes.push_back({});
    EXPECT_FALSE(decode_message(bytes, secret).ok()) << "longer";
    bytes.resize(bytes.size() - 2);
    EXPECT_FALSE(decode_message(bytes, secret).ok()) << "cut";
  }
  const std::vector<std::byte> many(kFollowingBytesMax + 1);
  const Message message{1, 2, DataWithBytes{{}, static_cast<uint16_t>(many.size())}, {3, 4, 5}};
  EXPECT_FALSE(decode_message(encode(message, secret, many), secret).ok());
}

TEST(Wire, WhatIsCutOrTooLongIsAnError) {
  property("no strict prefix, and nothing longer, is read", [] {
    auto message = encode(some_message()), descriptor = encode(some_descriptor()),
         address = encode(some_address());
    for (auto* bytes : {&message, &descriptor, &address}) {
      auto longer = *bytes;
      longer.push_back({});
      bytes->resize(*rc::gen::inRange<size_t>(0, bytes->size()));
      for (const auto& wrong : {*bytes, longer}) {
        RC_ASSERT(!decode_message(wrong).ok());
        RC_ASSERT(!decode_descriptor(wrong).ok());
        RC_ASSERT(!decode_address(wrong).ok());
      }
    }
  });
}

TEST(Wire, AlteredBytesAreAnErrorOrAnotherMessage) {
  property("version 1 has no seal: decoding stays within the bytes, and within the limits", [] {
    Message message = some_message();
    message.version = 1;
    auto bytes = encode(message);
    for (int i = *rc::gen::inRange(1, 5); i > 0; --i)
      bytes[*rc::gen::inRange<size_t>(0, bytes.size())] = std::byte{*rc::gen::arbitrary<uint8_t>()};
    const Result<Message> read = decode_message(bytes);
    if (!read.ok()) return;
    RC_ASSERT(encode(read.value()).size() <= kMessageBytesMax);
    if (const auto* hello = std::get_if<Hello>(&read.value().body))
      RC_ASSERT(hello->address.rails.size() <= kRailsMax);
  });
}

TEST(Wire, NothingThatWasAlteredIsRead) {
  const Secret secret = Secret::of(std::vector<std::byte>(32, std::byte{7})).value();
  property("one other bit, and the seal is wrong, with a secret or without one", [&] {
    for (const Secret& key : {Secret(), secret}) {
      auto message = encode(some_message(), key), descriptor = encode(some_descriptor(), key),
           address = encode(some_address(), key);
      for (auto* bytes : {&message, &descriptor, &address}) {
        const size_t bit = *rc::gen::inRange<size_t>(8 * 6, 8 * bytes->size());  // not the version
        (*bytes)[bit / 8] ^= std::byte{1} << bit % 8;
        RC_ASSERT(!decode_message(*bytes, key).ok());
        RC_ASSERT(!decode_descriptor(*bytes, key).ok());
        RC_ASSERT(!decode_address(*bytes, key).ok());
      }
    }
  });
}

TEST(Wire, AnotherSecretIsNamed) {
  const Secret secret = Secret::of(std::vector<std::byte>(32, std::byte{7})).value();
  const Secret other = Secret::of(std::vector<std::byte>(32, std::byte{8})).value();
  const Address address{1, {}, {{"shm", {}, {}}}};
  EXPECT_TRUE(decode_address(encode(address, secret), secret).ok());
  EXPECT_EQ(decode_address(encode(address, other), secret).status().message(),
            "this address was altered or cut, or its engine has another secret or none. Give all "
            "engines the same secret");
  EXPECT_EQ(
      decode_address(encode(address, other)).status().message(),
      "this address was altered or cut, or its engine has a secret. Give this engine the same "
      "secret");
}

// Recorded from version 1, which is to be understood for as long as this is version 2.
TEST(Wire, BytesOfTheVersionBeforeAreReadAndWritten) {
  const Address address{
      0x1122334455667788,
      {},
      {{"simulated", {std::byte{7}, {}, {}, {}, {}, {}, {}, {}}, {0x1000, 0xabcdef0123456789}}},
      1};
  Message hello{address.engine, 42, Hello{address, 3}};
  hello.version = 1;
  Message welcome{address.engine, 42, Welcome{9}};
  welcome.version = 1;
  const Descriptor descriptor{address.engine, 42, 5, 4096, {{0x2000, 77}}, 0, 1};
  EXPECT_EQ(decode_message(test::from_hex(test::kHelloOfVersion1)).value(), hello);
  EXPECT_EQ(test::to_hex(encode(hello)), test::kHelloOfVersion1);
  EXPECT_EQ(test::to_hex(encode(welcome)),
            "4252464201001188776655443322112a0000000000000009000000");
  const std::string recorded =
      "4252464201000288776655443322112a000000000000000500000000000000001000000000000001000020000000"
      "0000004d00000000000000";
  EXPECT_EQ(decode_descriptor(test::from_hex(recorded)).value(), descriptor);
  EXPECT_EQ(test::to_hex(encode(descriptor)), recorded);
  EXPECT_FALSE(decode_message(test::from_hex(test::kHelloOfVersion1),
                              Secret::of(std::vector<std::byte>(32)).value())
                   .ok())
      << "version 1 has no seal";
}

TEST(Wire, ACountBeyondTheLimitAllocatesNothing) {
  auto bytes = encode(Descriptor{1, 2, 3, 4, {}, 0, 1});
  bytes[bytes.size() - 2] = bytes[bytes.size() - 1] = std::byte{0xff};  // 65535 rails
  EXPECT_FALSE(decode_descriptor(bytes).ok());
}

TEST(Wire, AnotherVersionIsNamed) {
  auto bytes = encode(Address{1, {}, {{"shm", {}, {}}}});
  bytes[4] = std::byte{9};
  EXPECT_EQ(decode_address(bytes).status().message(),
            "this address is of version 9; this is version 3. Use versions of braid that are next "
            "to each other");
}

TEST(Wire, APeerOfVersion2KnowsOneEndpoint) {
  const std::vector<std::byte> first(16, std::byte{1}), further(16, std::byte{2});
  Message message{1, 2, Welcome{3, {{first, {further, further}}}, {}}};
  message.session = {4, 5, 6};
  EXPECT_EQ(decode_message(encode(message)).value(), message);
  message.version = 2;
  const auto read = std::get<Welcome>(decode_message(encode(message)).value().body);
  EXPECT_EQ(read.doors, (Doors{{first, {}}}));
}

TEST(Wire, OneKindIsNotTakenForAnother) {
  EXPECT_FALSE(decode_descriptor(encode(Address{1, {}, {{"shm", {}, {}}}})).ok());
  EXPECT_FALSE(decode_message(encode(Descriptor{})).ok());
}

}  // namespace
}  // namespace braid::fabric
