// Limits of the local domain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fabric/local/segment.h"
#include "fabric/versions.h"

namespace braid::fabric::local {

/// A copy between GPUs takes a microsecond for what takes a network a hundred, and as long to
/// begin.
inline constexpr uint64_t kPostingsMax = 4096;
inline constexpr uint64_t kPostedBytesMax = 128 << 20;
inline constexpr size_t kHostPartBytes = 64 << 10;
inline constexpr size_t kMessageBytesMax = 64 << 10;
inline constexpr uint64_t kHeldMessagesMax = 64;  // of one visitor, that no buffer is there for
inline constexpr int kRecordsAtOnce = 256;
inline constexpr size_t kStrangersMax = 64;
inline constexpr size_t kVisitorsMax = 1024;
// Of one process that takes nothing of what it is told: more is due to none that works.
inline constexpr size_t kSayingsMax = 4 * kPostingsMax;
inline constexpr size_t kAsksMax = 2 * kSlots;
/// Completions that nobody has taken: beyond that, visitors wait.
inline constexpr size_t kReadyMax = 4096;
inline constexpr uint64_t kLandedMax = 0xffffffff;  // in one record
/// Small pages of 256 KiB, as an engine gathers them.
inline constexpr size_t kSegmentsMax = 64;
inline constexpr uint64_t kBetweenLooksNs = 50'000;

/// That this engine speaks. A domain's address ends in those that it speaks, ".3.2", or in none
/// from before addresses said so. A hello is of the version that the writer has chosen.
inline constexpr Versions kVersions{.newest = 1, .oldest = 1};
std::string suffix_of(const Versions& versions);
Versions versions_of(const std::string& address);
/// The first packet; its last byte is the version.
inline constexpr uint64_t kHello = 0x4c41434f4c444200;
constexpr uint64_t hello_of(uint8_t version) { return kHello | version; }

/// GPU memory is named by addresses with this bit: offsets in the region.
inline constexpr uint64_t kGpuBase = uint64_t{1} << 63;

}  // namespace braid::fabric::local
