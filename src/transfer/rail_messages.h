// The messages of two engines over a rail, as payloads of fabric's messages: at most
// fabric::kPayloadBytesMax each, in any order, sealed by fabric. Received messages are read with
// all bounds checked (codec.h).
//
// Versions: a reader takes every version from kVersionOldest to kVersion. Each side sends its
// version in Hello, and both then use the lower one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "fabric/wire.h"
#include "transfer/types.h"

namespace braid::transfer {

/// 2: descriptions say where memory and rails lie. 3: owners say why their storage refused.
/// 4: descriptions say how far the NUMA nodes of the host lie from each other; reads and writes of
/// files can be given up. 5: small reads are answered by a message that the bytes follow.
inline constexpr uint16_t kVersionNewest = 5;
inline constexpr uint16_t kVersionOldest = 1;
#ifdef BRAID_PREVIOUS_VERSION  // a library of the version before, for tests of upgrades
inline constexpr uint16_t kVersion = std::max<uint16_t>(kVersionNewest - 1, kVersionOldest);
#else
inline constexpr uint16_t kVersion = kVersionNewest;
#endif
inline constexpr size_t kDescriptorBytesMax = 512;
inline constexpr size_t kReadsInMessage = 64;
inline constexpr size_t kSmallReadBytesMax = fabric::kFollowingBytesMax;
inline constexpr size_t kNotificationBytesMax = 3072;
inline constexpr size_t kPathBytesMax = 1024;
/// Bytes to or from a file pass through memory of the owner in parts of this size.
inline constexpr uint64_t kStagedBytes = 512 << 10;

/// The first message of each side. Fabric's connection says which rail it is; `engine` says which
/// process, and `generation` which of its connections over this rail, counted by the sender.
struct Hello {
  Incarnation incarnation{};
  uint64_t engine = 0;  ///< fabric's number of the sender's rail
  uint64_t generation = 0;
  uint16_t version_oldest = kVersionOldest;
  uint16_t version = kVersion;
};

/// Asks for the right to write there. The answer is a descriptor of the whole buffer around it, for
/// this rail.
struct GrantRequest {
  uint64_t token = 0;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
};
struct GrantAnswer {
  uint64_t token = 0;
  Cause cause = Cause::kNone;
  uint64_t address = 0;  ///< of the buffer
  uint64_t size_bytes = 0;
  std::vector<std::byte> descriptor;
};

/// Lends a buffer of the sender; the peer writes bytes there that the sender reads.
struct Lend {
  uint64_t number = 0;
  std::vector<std::byte> descriptor;
};
struct Lent {
  uint64_t number = 0;
  Cause cause = Cause::kNone;
};

/// Asks the peer to write the bytes at `address` into the lent buffer, with the immediate.
struct ReadRequest {
  uint64_t id = 0;
  uint64_t file = 0;     ///< 0: memory. Otherwise the number in FileOpened
  uint64_t address = 0;  ///< an address of memory, or the position in the file
  uint64_t size_bytes = 0;
  uint64_t lent = 0;
  uint64_t offset_bytes = 0;  ///< in the lent buffer
  uint32_t immediate = 0;
};
struct Reads {
  std::vector<ReadRequest> reads;
};
/// Asks for bytes of memory that are to come with the answer. Since version 5.
struct SmallRead {
  uint64_t id = 0;
  uint64_t address = 0;
  uint64_t size_bytes = 0;  ///< at most kSmallReadBytesMax
};
struct SmallReadAnswer {
  uint64_t id = 0;
  Cause cause = Cause::kNone;  ///< kNone: the bytes follow. kOtherWay: ask for them by ReadRequest
};
/// A read that was refused.
struct Refusal {
  uint64_t id = 0;
  Cause cause = Cause::kNone;
};
struct Refused {
  std::vector<Refusal> refusals;
};

/// Asks the receiver to end all writes that rail `engine` of the sender may still make there, over
/// links up to that generation.
struct FenceRequest {
  uint64_t token = 0;
  uint64_t engine = 0;
  uint64_t generation = 0;
};
/// None of those writes can land any more.
struct FenceAnswer {
  uint64_t token = 0;
};

/// Asks whether this rail works. It is answered at once.
struct Ping {
  uint64_t token = 0;
};
struct Pong {
  uint64_t token = 0;
};

/// The sender's engine ends, and will not come back.
struct Leaving {};

/// Asks for a file of an exported folder. The number in the answer holds over all links to that
/// owner.
struct FileOpen {
  uint64_t token = 0;
  Rights wanted = kNoRights;
  std::string path;
};
struct FileOpened {
  uint64_t token = 0;
  Cause cause = Cause::kNone;
  uint64_t file = 0;
  uint64_t size_bytes = 0;  ///< the current size of the file
};
/// Asks for a stage: memory at the owner for bytes that this link writes to files. Each link has
/// one, cut into parts.
struct StageRequest {};
struct StageAnswer {
  Cause cause = Cause::kNone;
  uint64_t size_bytes = 0;
  std::vector<std::byte> descriptor;
};
/// Asks the owner to write bytes from the stage to that position of the file.
struct FileWrite {
  uint64_t id = 0;
  uint64_t file = 0;
  uint64_t position = 0;
  uint64_t size_bytes = 0;
  uint64_t offset_bytes = 0;  ///< in the stage
};
/// The bytes are in the file, or the cause says why not. The writer may use the part of the stage
/// again.
struct FileWritten {
  uint64_t id = 0;
  Cause cause = Cause::kNone;
};

/// The sender waits no more for what it has asked for: the owner's file system may not answer for
/// long. The owner answers with Refused, or FileWritten, once nothing of it can land any more, if
/// it has not answered already. Since version 4.
struct ReadGivenUp {
  uint64_t id = 0;
};
struct WriteGivenUp {
  uint64_t id = 0;
};

/// Sent at least once, delivered exactly once: the numbers of one sender rise from 1.
struct Notification {
  uint64_t sequence = 0;
  std::string name;
  std::vector<std::byte> payload;
};
struct NotificationAnswer {
  uint64_t sequence = 0;
  Cause cause = Cause::kNone;
};

constexpr bool can_give_up_in(uint16_t version) { return version >= 4; }
constexpr bool can_read_small_in(uint16_t version) { return version >= 5; }

/// The cause as peers of that version know it.
constexpr Cause known_in(uint16_t version, Cause cause) {
  return version < 3 && is_of_storage(cause) ? Cause::kFileError : cause;
}

using RailMessage =
    std::variant<Hello, GrantRequest, GrantAnswer, Lend, Lent, Reads, Refused, FenceRequest,
                 FenceAnswer, Ping, Pong, Leaving, FileOpen, FileOpened, StageRequest, StageAnswer,
                 FileWrite, FileWritten, Notification, NotificationAnswer, ReadGivenUp,
                 WriteGivenUp, SmallRead, SmallReadAnswer>;

std::vector<std::byte> encode(const RailMessage& message);
Result<RailMessage> decode_rail_message(Bytes bytes);

}  // namespace braid::transfer
