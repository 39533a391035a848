// What engines tell each other, as bytes: addresses, descriptors, messages. Whatever comes from
// outside is read with its bounds checked, and with limits before anything is allocated. A reader
// takes every version from kVersionOldest to kVersion.
//
// Layout: little endian; "BRFB", the version as 2 bytes, the kind as 1 byte; then the fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "fabric/domain.h"
#include "fabric/policy/slicing.h"

namespace braid::fabric {

inline constexpr uint16_t kVersion = 1;
inline constexpr uint16_t kVersionOldest = 1;
inline constexpr size_t kRailsMax = 16;
inline constexpr size_t kProviderBytesMax = 32;
/// A message with its header, also the largest Hello.
inline constexpr size_t kMessageBytesMax = 4096;
/// What a Data message can carry.
inline constexpr size_t kPayloadBytesMax = kMessageBytesMax - 64;

/// One network interface of an engine.
struct RailAddress {
  std::string provider;
  std::vector<std::byte> name;  ///< Domain::address
  RemoteRange scratch;          ///< where a write goes that carries nothing but an immediate
  bool operator==(const RailAddress&) const = default;
};

/// How to reach an engine. It says who it is by a number that no other engine has or has had, so an
/// old address never reaches a new process by mistake.
struct Address {
  uint64_t engine = 0;
  Slicing slicing;
  std::vector<RailAddress> rails;
  bool operator==(const Address&) const = default;
};

/// Leave to write into some memory of `owner`, for `writer` alone.
struct Descriptor {
  uint64_t owner = 0;
  uint64_t writer = 0;
  uint64_t grant = 0;  ///< numbers of one owner rise
  uint64_t size_bytes = 0;
  std::vector<RemoteRange> rails;
  bool operator==(const Descriptor&) const = default;
};

/// The first message to a peer; it says how to answer.
struct Hello {
  Address address;
  uint32_t credits = 0;  ///< how many messages the peer may send
  bool operator==(const Hello&) const = default;
};
struct Welcome {
  uint32_t credits = 0;
  bool operator==(const Welcome&) const = default;
};
struct Data {
  std::vector<std::byte> payload;
  bool operator==(const Data&) const = default;
};
/// So many more messages may come.
struct Credit {
  uint32_t credits = 0;
  bool operator==(const Credit&) const = default;
};
/// The peer is to stop writing under this grant, and to say when nothing of it is under way.
struct Revoke {
  uint64_t grant = 0;
  uint64_t oldest_live = 0;  ///< grants below are revoked, and need not be remembered one by one
  bool operator==(const Revoke&) const = default;
};
/// Nothing is under way any more. If a write failed, some of it may be in the network: not clean.
struct Revoked {
  uint64_t grant = 0;
  bool is_clean = false;
  bool operator==(const Revoked&) const = default;
};

struct Message {
  uint64_t from = 0;  ///< engines
  uint64_t to = 0;
  std::variant<Hello, Welcome, Data, Credit, Revoke, Revoked> body;
  bool operator==(const Message&) const = default;
};

std::vector<std::byte> encode(const Address& address);
std::vector<std::byte> encode(const Descriptor& descriptor);
std::vector<std::byte> encode(const Message& message);

Result<Address> decode_address(Bytes bytes);
Result<Descriptor> decode_descriptor(Bytes bytes);
Result<Message> decode_message(Bytes bytes);

}  // namespace braid::fabric
