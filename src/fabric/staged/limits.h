// Sizes and limits of the staged domain, and the contexts of its own postings.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/domain.h"
#include "fabric/wire.h"

namespace braid::fabric::staged {

/// The slice size of all but huge writes, so that most slices are one piece.
inline constexpr uint64_t kPieceBytesMax = 512 << 10;
/// The limit of a rail with GPU memory: more than the wire alone needs, since pieces are also
/// copied, announced and answered.
inline constexpr uint64_t kPostedBytesMax = 12 << 20;
/// Twice kPostedBytesMax, since spans become free in the order in which they were taken.
inline constexpr uint64_t kRingBytes = 2 * kPostedBytesMax;
inline constexpr size_t kRingsMax = 64;  // 1.5 GiB pinned
inline constexpr uint32_t kPostingsOfPeerMax = 256;
inline constexpr uint64_t kArrivalsOfVisitorMax = 4096;
inline constexpr size_t kPartialWritesMax = 1024;  // of one visitor
// Limits for strangers, who are not peers of ours: anybody may ask for a ring, and each ring costs
// memory.
inline constexpr size_t kStrangersMax = 8;
inline constexpr size_t kRingsOfStrangersMax = 8;
inline constexpr size_t kRecordsOfLineMax = 8192;  // answers that the peer does not take
/// The domain's user sends the longest messages, which pass through.
inline constexpr size_t kMessageBytes = kMessageBytesMax;
inline constexpr uint32_t kReceives = 64;
inline constexpr uint32_t kSendsOfLine = 2;
inline constexpr uint64_t kSilencePollsMax = 4096;  // the longest pause after refused messages
inline constexpr uint64_t kRefusedPolls = 2;        // the pause after a message that found no room
// Polls in which last messages are tried on a line without users: a peer that is gone may look like
// a full queue for ever.
inline constexpr uint64_t kFarewellPollsMax = 1024;

/// Addresses in GPU memory have this bit, and no wire's addresses do. The other bits are the offset
/// in the region.
inline constexpr uint64_t kGpuBase = uint64_t{1} << 63;

enum class Own : uint8_t { kReceive, kSend, kPiece, kArrival };
constexpr uint64_t own(Own what, uint32_t index) {
  return kOwnContexts | static_cast<uint64_t>(what) << 32 | index;
}

}  // namespace braid::fabric::staged
