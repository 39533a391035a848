// What two engines say to each other over a rail, as payloads of fabric's messages: at most
// fabric::kPayloadBytesMax each, in any order, sealed by fabric. Whatever comes is read with its
// bounds checked (codec.h).
//
// Versions: a reader takes every version from kVersionOldest to kVersion. Both sides say theirs in
// Hello, and speak the lower one from then on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "transfer/types.h"

namespace braid::transfer {

/// 2: descriptions say where memory and rails lie.
inline constexpr uint16_t kVersionNewest = 2;
inline constexpr uint16_t kVersionOldest = 1;
#ifdef BRAID_PREVIOUS_VERSION  // a library of the version before, for tests of upgrades
inline constexpr uint16_t kVersion = std::max<uint16_t>(kVersionNewest - 1, kVersionOldest);
#else
inline constexpr uint16_t kVersion = kVersionNewest;
#endif
inline constexpr size_t kDescriptorBytesMax = 512;
inline constexpr size_t kReadsInMessage = 64;
inline constexpr size_t kNotificationBytesMax = 3072;
inline constexpr size_t kPathBytesMax = 1024;
/// Bytes on their way to a file, or from one, go through memory of the owner's in such parts.
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

/// May I write there? The answer is a descriptor of the whole buffer around it, for this rail.
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

/// A buffer of the sender's that the peer may write into what is read.
struct Lend {
  uint64_t number = 0;
  std::vector<std::byte> descriptor;
};
struct Lent {
  uint64_t number = 0;
  Cause cause = Cause::kNone;
};

/// Write what lies at `address` into the lent buffer, with the immediate.
struct ReadRequest {
  uint64_t id = 0;
  uint64_t file = 0;     ///< 0: memory. Otherwise of FileOpened
  uint64_t address = 0;  ///< of memory, or the position in the file
  uint64_t size_bytes = 0;
  uint64_t lent = 0;
  uint64_t offset_bytes = 0;  ///< in the lent buffer
  uint32_t immediate = 0;
};
struct Reads {
  std::vector<ReadRequest> reads;
};
/// Of those that were not done.
struct Refusal {
  uint64_t id = 0;
  Cause cause = Cause::kNone;
};
struct Refused {
  std::vector<Refusal> refusals;
};

/// Ends what this rail of the sender's may still write at the receiver, up to that generation.
struct FenceRequest {
  uint64_t token = 0;
  uint64_t engine = 0;
  uint64_t generation = 0;
};
/// Nothing of it can land any more.
struct FenceAnswer {
  uint64_t token = 0;
};

/// Does this rail work? Answered at once.
struct Ping {
  uint64_t token = 0;
};
struct Pong {
  uint64_t token = 0;
};

/// The sender's engine ends, and will not come back.
struct Leaving {};

/// A file of an exported folder. The number holds over all links to that owner.
struct FileOpen {
  uint64_t token = 0;
  Rights wanted = kNoRights;
  std::string path;
};
struct FileOpened {
  uint64_t token = 0;
  Cause cause = Cause::kNone;
  uint64_t file = 0;
  uint64_t size_bytes = 0;  ///< that it has now
};
/// Room at the owner for what this link writes to files: one for each link, cut into parts.
struct StageRequest {};
struct StageAnswer {
  Cause cause = Cause::kNone;
  uint64_t size_bytes = 0;
  std::vector<std::byte> descriptor;
};
/// What lies in the stage belongs there in the file.
struct FileWrite {
  uint64_t id = 0;
  uint64_t file = 0;
  uint64_t position = 0;
  uint64_t size_bytes = 0;
  uint64_t offset_bytes = 0;  ///< in the stage
};
/// It is there, or why not; the part of the stage is the writer's again.
struct FileWritten {
  uint64_t id = 0;
  Cause cause = Cause::kNone;
};

/// At least once on the wire, once for the receiver: numbers of one sender rise from 1.
struct Notification {
  uint64_t sequence = 0;
  std::string name;
  std::vector<std::byte> payload;
};
struct NotificationAnswer {
  uint64_t sequence = 0;
  Cause cause = Cause::kNone;
};

using RailMessage =
    std::variant<Hello, GrantRequest, GrantAnswer, Lend, Lent, Reads, Refused, FenceRequest,
                 FenceAnswer, Ping, Pong, Leaving, FileOpen, FileOpened, StageRequest, StageAnswer,
                 FileWrite, FileWritten, Notification, NotificationAnswer>;

std::vector<std::byte> encode(const RailMessage& message);
Result<RailMessage> decode_rail_message(Bytes bytes);

}  // namespace braid::transfer
