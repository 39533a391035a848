// Limits of the local domain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fabric/local/segment.h"
#include "fabric/versions.h"

namespace braid::fabric::local {

/// A copy between GPUs takes a microsecond for the bytes that take a network a hundred, and takes
/// as long to begin.
inline constexpr uint64_t kPostingsMax = 4096;
inline constexpr uint64_t kPostedBytesMax = 128 << 20;
inline constexpr size_t kHostPartBytes = 64 << 10;
/// What one step copies into the pages of one peer: so a step ends soon, whatever is to be written.
inline constexpr uint64_t kPageBytesAtOnce = 256 << 10;
inline constexpr size_t kMessageBytesMax = 64 << 10;
inline constexpr uint64_t kHeldMessagesMax = 64;  // of one visitor, without a buffer
inline constexpr int kRecordsAtOnce = 256;
inline constexpr size_t kStrangersMax = 64;
inline constexpr size_t kVisitorsMax = 1024;
// Records that may wait for one process: a process that works never has more to take.
inline constexpr size_t kSayingsMax = 4 * kPostingsMax;
inline constexpr size_t kAsksMax = 2 * kSlots;
/// Completions that were not polled yet: beyond that, visitors wait.
inline constexpr size_t kReadyMax = 4096;
inline constexpr uint64_t kLandedMax = 0xffffffff;  // in one record
inline constexpr size_t kSegmentsMax = 64;
/// A GPU copies a slice in less time than a posting of its own would cost the CPU. And each copy
/// between GPUs costs as much as a megabyte, whatever else is under way, so a large write goes
/// whole.
inline constexpr uint64_t kGatheredToHostBytesMax = 4 << 20;
inline constexpr uint64_t kGatheredToGpuBytesMax = 64 << 20;
inline constexpr uint64_t kBetweenLooksNs = 50'000;
/// For processes that have ended.
inline constexpr uint64_t kBetweenLooksForEndsNs = 1'000'000;
/// How long a domain sleeps when it has something to do, and nobody tells it when.
inline constexpr uint64_t kNapNs = 400'000;

/// The versions that this engine speaks. A domain's address ends in its versions, as in ".3.2";
/// older addresses end in none. The writer chooses the version, and its hello says it.
inline constexpr Versions kVersions{.newest = 1, .oldest = 1};
std::string suffix_of(const Versions& versions);
Versions versions_of(const std::string& address);
/// The first packet; its last byte is the version.
inline constexpr uint64_t kHello = 0x4c41434f4c444200;
/// The last packet of a writer that has unmapped all memory. Its queue may be full, and then has no
/// room for kLetGo.
inline constexpr uint64_t kGoodbye = 0x4c41434f4c474200;
constexpr uint64_t hello_of(uint8_t version) { return kHello | version; }

/// In tags of copies: into the bounce buffer.
inline constexpr uint64_t kBouncing = uint64_t{1} << 63;

/// Addresses in GPU memory have this bit, and those in host memory that can be mapped the other
/// one. The rest is the offset in the region.
inline constexpr uint64_t kGpuBase = uint64_t{1} << 63;
inline constexpr uint64_t kPagesBase = uint64_t{1} << 62;
constexpr uint64_t offset_of(uint64_t address) { return address & ~(kGpuBase | kPagesBase); }

}  // namespace braid::fabric::local
