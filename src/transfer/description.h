// What an engine says of itself to whoever asks by its name: where its rails are, and what it has
// registered. Never a key: grants come later, one by one, and the owner checks each.
//
// On the wire: "BRTF", the version as 2 bytes, the kind as 1 byte, the fields (codec.h), then the
// seal of all bytes before it (fabric/seal.h), with the secret if there is one. The answer repeats
// the question's nonce, so that a recorded one is of no use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/seal.h"
#include "fabric/wire.h"
#include "transfer/rail_messages.h"
#include "transfer/types.h"

namespace braid::transfer {

inline constexpr size_t kFrameBytesMax = 1 << 20;
inline constexpr size_t kRailsInDescriptionMax = 64;
inline constexpr size_t kRangesInDescriptionMax = 32768;
inline constexpr size_t kExportsMax = 256;
inline constexpr size_t kNameBytesMax = 255;

struct RailDescription {
  std::string provider;
  std::string host_address;  ///< to be shown
  double gbps = 1;           ///< what the NIC claims, 10^9 bytes a second
  int numa_node = -1;
  std::vector<std::byte> address;  ///< Rail::address
};
struct RangeDescription {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  Rights rights = kNoRights;
};
struct ExportDescription {
  std::string name;
  Rights rights = kNoRights;
};

struct Description {
  Incarnation incarnation{};
  std::string name;
  uint16_t version_oldest = kVersionOldest;
  uint16_t version = kVersion;
  fabric::Origin origin{};  ///< its process, for those of the same host
  std::vector<RailDescription> rails;
  std::vector<RangeDescription> ranges;  ///< at most kRangesInDescriptionMax, the lowest
  uint64_t range_count = 0;              ///< all of them
  std::vector<ExportDescription> exports;
};

struct Question {
  uint64_t nonce = 0;
  /// All zero: whoever listens there. Otherwise this engine alone.
  Incarnation incarnation{};
};
struct Answer {
  uint64_t nonce = 0;
  Cause cause = Cause::kNone;  ///< kNoSegment: another engine listens there now
  Description description;
};

std::vector<std::byte> encode(const Question& question, const fabric::Secret& secret);
std::vector<std::byte> encode(const Answer& answer, const fabric::Secret& secret);
Result<Question> decode_question(Bytes bytes, const fabric::Secret& secret);
Result<Answer> decode_answer(Bytes bytes, const fabric::Secret& secret);

/// "5f3c…", 32 digits.
std::string to_hex(const Incarnation& incarnation);
Result<Incarnation> incarnation_of_hex(std::string_view hex);

}  // namespace braid::transfer
