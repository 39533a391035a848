// The bytes that engines exchange: addresses, descriptors, messages. Bytes from outside are read
// with bounds checks, and limits are checked before anything is allocated.
//
// Layout: little endian; "BRFB", the version as 2 bytes, the kind as 1 byte; then the fields; then
// the seal (seal.h) of all bytes before it. Behind the seal of a DataWithBytes come its bytes.
//
// Versions: a reader takes every version from kVersionOldest to kVersion. A writer writes the
// version of its peer's first bytes, if that is older. So a newer engine can connect to an older
// one. Version 1 had no seals, sessions, doors, beats, goodbyes and retired rails; version 2 had
// one endpoint a rail, and goodbyes without an answer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "fabric/domain.h"
#include "fabric/endpoints.h"
#include "fabric/policy/slicing.h"
#include "fabric/seal.h"

namespace braid::fabric {

inline constexpr uint16_t kVersion = 3;
inline constexpr uint16_t kVersionOldest = 1;
inline constexpr size_t kRailsMax = 16;
inline constexpr size_t kProviderBytesMax = 32;
/// The most that a Data message can carry.
inline constexpr size_t kPayloadBytesMax = 4032;
/// The most that can follow one, and the most that it can carry then.
inline constexpr size_t kFollowingBytesMax = 4096;
inline constexpr size_t kPayloadBytesBeforeMax = 512;
/// A message with its header and seal. The largest Hello is a little larger than any other.
inline constexpr size_t kMessageBytesMax = 5632;

/// One network interface of an engine.
struct RailAddress {
  std::string provider;
  std::vector<std::byte> name;  ///< Domain::address
  RemoteRange scratch;          ///< the target of a write that carries only an immediate
  bool operator==(const RailAddress&) const = default;
};

/// How to reach an engine. The engine's number is one that no other engine has or has had, so an
/// old address never reaches a new process by mistake.
struct Address {
  uint64_t engine = 0;
  Slicing slicing;
  std::vector<RailAddress> rails;
  uint16_t version = kVersion;  ///< that the engine speaks
  bool operator==(const Address&) const = default;
};

/// Identifies an engine's process, so that other processes of the host can notice its end. All
/// zero: it is not told.
struct Origin {
  std::array<uint64_t, 2> boot{};  ///< the kernel's boot id
  uint64_t pid_namespace = 0;
  uint64_t started = 0;  ///< in clock ticks after the boot; tells a reused number apart
  uint32_t process = 0;
  bool operator==(const Origin&) const = default;
};

/// The door for one peer on one rail.
struct DoorAddress {
  std::vector<std::byte> first;                 ///< Domain::door_address
  std::vector<std::vector<std::byte>> further;  ///< at the rail's other endpoints; from version 3
  bool operator==(const DoorAddress&) const = default;
};
using Doors = std::vector<DoorAddress>;  ///< by rail

/// The permission to write into some memory of `owner`, for `writer` alone.
struct Descriptor {
  uint64_t owner = 0;
  uint64_t writer = 0;
  uint64_t grant = 0;  ///< the numbers of one connection are consecutive
  uint64_t size_bytes = 0;
  std::vector<RemoteRange> rails;
  uint64_t session = 0;  ///< the owner's number of the connection; 0 in version 1
  uint16_t version = kVersion;
  bool operator==(const Descriptor&) const = default;
};

/// The first message to a peer; it says how to answer.
struct Hello {
  Address address;
  uint32_t credits = 0;  ///< how many messages the peer may send
  Doors doors{};
  Origin origin{};
  bool operator==(const Hello&) const = default;
};
struct Welcome {
  uint32_t credits = 0;
  Doors doors{};
  Origin origin{};
  bool operator==(const Welcome&) const = default;
};
struct Data {
  std::vector<std::byte> payload;
  bool operator==(const Data&) const = default;
};
/// A Data message that bytes follow. They are not sealed, as those of writes are not. Version 3 did
/// not begin with it: it goes to engines of which the sender knows that they take it.
struct DataWithBytes {
  std::vector<std::byte> payload;
  uint16_t following_bytes = 0;
  bool operator==(const DataWithBytes&) const = default;
};
/// The receiver may send so many more messages.
struct Credit {
  uint32_t credits = 0;
  bool operator==(const Credit&) const = default;
};
/// Asks the peer to stop writing under this grant, and to answer when none of its writes is under
/// way.
struct Revoke {
  uint64_t grant = 0;
  uint64_t oldest_live = 0;  ///< all grants below are revoked: no need to remember each
  bool operator==(const Revoke&) const = default;
};
/// The answer: no write is under way any more. Not clean: a write has failed, so some of it may
/// still be in the network.
struct Revoked {
  uint64_t grant = 0;
  bool is_clean = false;
  bool operator==(const Revoked&) const = default;
};

/// The sender is alive, and has received the Welcome.
struct Beat {
  bool operator==(const Beat&) const = default;
};
/// The sender has ended this connection. It still obeys only revocations.
struct Goodbye {
  enum class Why : uint8_t { kLeaves, kSilence };
  Why why = Why::kLeaves;
  /// Writes of the sender's have not ended. It waits for a goodbye in answer: then the receiver has
  /// shut its doors. From version 3.
  bool awaits_answer = false;
  bool operator==(const Goodbye&) const = default;
};

/// Rails that the sender has taken out of use: bit i is rail i. Messages have no order: the message
/// with the largest `change` counts.
struct RailsRetired {
  uint32_t rails = 0;
  uint64_t change = 0;
  bool operator==(const RailsRetired&) const = default;
};

/// The connection of the two engines that a message belongs to, and the message's number in it.
/// Each side numbers a connection at random, so that no message of an earlier one is mistaken for
/// one of this.
struct Session {
  uint64_t from = 0;      ///< the sender's number
  uint64_t to = 0;        ///< the receiver's; 0 in a Hello, which does not know it
  uint64_t sequence = 0;  ///< counts from 1 in each direction; 0 in a Hello
  bool operator==(const Session&) const = default;
};

struct Message {
  uint64_t from = 0;  ///< engines
  uint64_t to = 0;
  std::variant<Hello, Welcome, Data, Credit, Revoke, Revoked, Beat, Goodbye, RailsRetired,
               DataWithBytes>
      body;
  Session session{};
  uint16_t version = kVersion;
  bool operator==(const Message&) const = default;
};

std::vector<std::byte> encode(const Address& address, const Secret& secret = {});
std::vector<std::byte> encode(const Descriptor& descriptor, const Secret& secret = {});
/// `following`: the bytes of a DataWithBytes.
std::vector<std::byte> encode(const Message& message, const Secret& secret = {},
                              Bytes following = {});

Result<Address> decode_address(Bytes bytes, const Secret& secret = {});
Result<Descriptor> decode_descriptor(Bytes bytes, const Secret& secret = {});
/// The bytes of a DataWithBytes are the last ones of `bytes`.
Result<Message> decode_message(Bytes bytes, const Secret& secret = {});

/// Whether somebody who has the secret has made these bytes. Bytes of version 1 have no seal: they
/// are accepted if there is no secret.
bool is_sealed(Bytes bytes, const Secret& secret);

}  // namespace braid::fabric
