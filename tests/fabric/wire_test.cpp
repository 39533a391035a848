// What engines tell each other survives the way, and nothing that is cut, altered or made up does
// harm.
#include "fabric/wire.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <functional>

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
  switch (*rc::gen::inRange(0, 6)) {
    case 0: message.body = Hello{some_address(), *rc::gen::arbitrary<uint32_t>()}; break;
    case 1: message.body = Welcome{*rc::gen::arbitrary<uint32_t>()}; break;
    case 2: message.body = Data{some_bytes(kPayloadBytesMax)}; break;
    case 3: message.body = Credit{*rc::gen::arbitrary<uint32_t>()}; break;
    case 4: message.body = Revoke{some_number(), some_number()}; break;
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
  EXPECT_LE(encode(Message{1, 2, Hello{address, 3}}).size(), kMessageBytesMax);
  EXPECT_LE(encode(Message{1, 2, Data{std::vector<std::byte>(kPayloadBytesMax)}}).size(),
            kMessageBytesMax);
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
  property("decoding altered bytes stays within them, and within the limits", [] {
    auto bytes = encode(some_message());
    for (int i = *rc::gen::inRange(1, 5); i > 0; --i)
      bytes[*rc::gen::inRange<size_t>(0, bytes.size())] = std::byte{*rc::gen::arbitrary<uint8_t>()};
    const Result<Message> read = decode_message(bytes);
    if (!read.ok()) return;
    RC_ASSERT(encode(read.value()).size() <= kMessageBytesMax);
    if (const auto* hello = std::get_if<Hello>(&read.value().body))
      RC_ASSERT(hello->address.rails.size() <= kRailsMax);
  });
}

TEST(Wire, ACountBeyondTheLimitAllocatesNothing) {
  auto bytes = encode(Descriptor{1, 2, 3, 4, {}});
  bytes[bytes.size() - 2] = bytes[bytes.size() - 1] = std::byte{0xff};  // 65535 rails
  EXPECT_FALSE(decode_descriptor(bytes).ok());
}

TEST(Wire, AnotherVersionIsNamed) {
  auto bytes = encode(Address{1, {}, {{"shm", {}, {}}}});
  bytes[4] = std::byte{9};
  EXPECT_EQ(decode_address(bytes).status().message(),
            "this address is of version 9; this is version 1. Use versions of braid that are next "
            "to each other");
}

TEST(Wire, OneKindIsNotTakenForAnother) {
  EXPECT_FALSE(decode_descriptor(encode(Address{1, {}, {{"shm", {}, {}}}})).ok());
  EXPECT_FALSE(decode_message(encode(Descriptor{})).ok());
}

}  // namespace
}  // namespace braid::fabric
