// What two staged domains tell each other, as bytes: messages of records. Whatever comes from
// outside is read with its bounds checked.
//
// Layout: the mark, so that messages of the domain's user are told apart; then records of
// kRecordBytes each, little endian. A greeting is alone in its message, and the writer's address
// follows it; so is a ring, and the address of its door follows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "fabric/domain.h"
#include "fabric/versions.h"

namespace braid::fabric::staged {

enum class Kind : uint8_t {
  kGreeting = 1,  ///< writer: may I write to your GPUs? Numbers that follow are named below.
  kRing,          ///< owner: here is your ring; or a refusal, or it is yours no more
  kPiece,         ///< writer: a run of bytes of a piece lies in the ring
  kDone,          ///< owner: such a run was copied, or refused
  kForget,        ///< writer: no more pieces of this write will come
  kGoodbye,       ///< writer: nothing is under way, and nothing more will come
};

/// One for all kinds; each uses some of it.
struct Record {
  Kind kind = Kind::kGreeting;
  bool ok = true;              ///< kRing, kDone
  bool has_immediate = false;  ///< kPiece: to be delivered once the whole write was copied
  uint32_t immediate = 0;
  uint64_t session = 0;  ///< the receiver's number; 0 in a greeting
  uint64_t number = 0;   ///< greeting, ring: the sender's number. piece, done: the writer's
  /// piece, forget: the writer's number of the write. greeting: of the connection, which has one
  /// ring at a time
  uint64_t write = 0;
  uint64_t offset_bytes = 0;  ///< piece: in the ring. ring: its base, as the wire names it
  uint64_t size_bytes = 0;    ///< piece, ring
  uint64_t total_bytes = 0;   ///< piece: of the write
  uint64_t address = 0;       ///< piece: where it is to go
  uint64_t key = 0;           ///< piece: of that memory. ring: of the ring
  uint64_t slices = 1;        ///< piece: how often the immediate counts
  bool operator==(const Record&) const = default;
};

inline constexpr size_t kRecordBytes = 80;
inline constexpr size_t kMarkBytes = 8;

/// That this engine speaks. Each message begins with the version that it is of.
inline constexpr Versions kVersions{.newest = 4, .oldest = 4};
/// Nothing: the message is none of these, or of a version that this engine does not speak.
std::optional<uint8_t> version_of(Bytes message);
void append_mark(std::vector<std::byte>& message, uint8_t version = kVersions.newest);
void append(std::vector<std::byte>& message, const Record& record);

/// It is alone in its message, with an address.
constexpr bool has_address(const Record& record) {
  return record.kind == Kind::kGreeting || (record.kind == Kind::kRing && record.ok);
}

/// Of a message that has a version; nothing if it is malformed.
struct Message {
  std::vector<Record> records;
  std::vector<std::byte> address;
};
std::optional<Message> read_message(Bytes message);

/// A staged domain, or a door of it: where it is told things, which no door of a wire is, and the
/// wire's door, where its memory is written. Its bytes begin with the mark, so that who speaks
/// no version of ours is known before anything is said.
struct Address {
  std::vector<std::byte> place;
  std::vector<std::byte> door;         ///< empty: of the domain itself
  uint8_t version = kVersions.newest;  ///< that both sides speak
};
std::vector<std::byte> encode_address(Bytes place, Bytes door);
Result<Address> read_address(Bytes address);

}  // namespace braid::fabric::staged
