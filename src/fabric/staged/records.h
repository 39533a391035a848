// The bytes that two staged domains exchange: messages of records. Bytes from outside are read with
// bounds checks.
//
// Layout: the mark, which tells these messages from those of the domain's user; then records of
// kRecordBytes each, little endian. A greeting is alone in its message, followed by the writer's
// address. A ring record is alone too, followed by the address of its door, and by those of the
// same door at the wire's further endpoints. From version 6 on each message ends with a seal
// (sealing.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "fabric/domain.h"
#include "fabric/seal.h"
#include "fabric/versions.h"

namespace braid::fabric::staged {

enum class Kind : uint8_t {
  kGreeting = 1,  ///< writer: may I write to your GPUs?
  kRing,          ///< owner: here is your ring; or a refusal, or the end of it
  kPiece,         ///< writer: a run of bytes of a piece lies in the ring
  kDone,          ///< owner: the run was copied, or refused
  kForget,        ///< writer: no more pieces of this write will come
  kGoodbye,       ///< writer: nothing is under way, and nothing more will come
};

/// One struct for all kinds; each kind uses some fields.
struct Record {
  Kind kind = Kind::kGreeting;
  bool ok = true;              ///< kRing, kDone
  bool has_immediate = false;  ///< kPiece: delivered once the whole write was copied
  uint32_t immediate = 0;
  uint64_t session = 0;  ///< the receiver's number; 0 in a greeting
  uint64_t number = 0;   ///< greeting, ring: the sender's number. piece, done: the writer's
  /// piece, forget: the writer's number of the write. greeting: the writer's number of the
  /// connection, which has one ring at a time
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
inline constexpr size_t kTrailerBytes = 2 * sizeof(uint64_t) + kSealBytes;

/// The versions that this engine speaks. Each message begins with its version.
inline constexpr Versions kVersions{.newest = 6, .oldest = 5};
inline constexpr uint8_t kSealedVersion = 6;  ///< the version that brought seals
/// Nothing: the message is not of a staged domain, or is of a version that this engine does not
/// speak.
std::optional<uint8_t> version_of(Bytes message);
void append_mark(std::vector<std::byte>& message, uint8_t version = kVersions.newest);
void append(std::vector<std::byte>& message, const Record& record);
void append_number(std::vector<std::byte>& message, uint64_t number);
/// Takes it from the front of `rest`, which has as many bytes.
uint64_t read_number(Bytes& rest);

/// The record is alone in its message, with an address.
constexpr bool has_address(const Record& record) {
  return record.kind == Kind::kGreeting || (record.kind == Kind::kRing && record.ok);
}

/// Of a door: the address at the wire's first endpoint, then those at the others.
void append_addresses(std::vector<std::byte>& message, std::span<const Bytes> all);

/// The content of a message without its seal. `read_message` returns nothing if it is malformed.
struct Message {
  std::vector<Record> records;
  std::vector<std::vector<std::byte>> addresses;  ///< one at least where a record has an address
};
std::optional<Message> read_message(Bytes message);

/// The address of a staged domain, or of a door of it. `place` is where it receives messages, which
/// wire doors cannot carry; `door` is the wire's door, where its memory is written. The bytes begin
/// with the mark, so that a peer of another version is noticed before anything is sent.
struct Address {
  std::vector<std::byte> place;
  std::vector<std::byte> door;         ///< empty: of the domain itself
  uint8_t version = kVersions.newest;  ///< that both sides speak
};
std::vector<std::byte> encode_address(Bytes place, Bytes door);
Result<Address> read_address(Bytes address);

}  // namespace braid::fabric::staged
