// Sizes and limits of the staged domain, and the contexts of its own postings.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/domain.h"
#include "fabric/wire.h"

namespace braid::fabric::staged {

/// As long as the largest slice of a write that is not huge, so that most are one piece.
inline constexpr uint64_t kPieceBytesMax = 512 << 10;
/// What a rail has under way once it has GPU memory: more than the wire needs, since pieces are
/// also copied, announced and answered.
inline constexpr uint64_t kPostedBytesMax = 8 << 20;
/// Twice that: spans come back in the order of taking.
inline constexpr uint64_t kRingBytes = 16 << 20;
inline constexpr size_t kRingsMax = 64;  // 1 GiB pinned
inline constexpr uint32_t kPostingsOfPeerMax = 256;
inline constexpr uint64_t kArrivalsOfVisitorMax = 4096;
inline constexpr size_t kPartialWritesMax = 1024;  // of one visitor
// Who lies: each costs memory, and whoever is no peer of ours may ask for it.
inline constexpr size_t kStrangersMax = 8;
inline constexpr size_t kRingsOfStrangersMax = 8;
inline constexpr size_t kRecordsOfLineMax = 8192;  // answers that nobody takes
/// The user's messages, which pass through, are the longest.
inline constexpr size_t kMessageBytes = kMessageBytesMax;
inline constexpr uint32_t kReceives = 64;
inline constexpr uint32_t kSendsOfLine = 2;
inline constexpr uint64_t kSilencePollsMax = 4096;  // after a message that was given back
// For last words to a place without users. Whoever is gone may look like a full queue for ever.
inline constexpr uint64_t kFarewellPollsMax = 1024;

/// GPU memory is named by addresses with this bit, which no wire's have: offsets in the region.
inline constexpr uint64_t kGpuBase = uint64_t{1} << 63;

enum class Own : uint8_t { kReceive, kSend, kPiece, kArrival };
constexpr uint64_t own(Own what, uint32_t index) {
  return kOwnContexts | static_cast<uint64_t>(what) << 32 | index;
}

}  // namespace braid::fabric::staged
