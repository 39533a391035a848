// The description that an engine gives to a process that asks for it by name: where its rails are,
// and which memory it has registered. It contains no key: grants come later, one by one, and the
// owner checks each.
//
// On the wire, question and answer are each a sealed frame (sealed.h). The answer repeats the
// question's nonce, so that a recorded answer is of no use. The answer has the question's version.
// An owner that does not know the version, or has another secret, says so (`refuse`), and a process
// that was refused for its version asks again in the owner's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/seal.h"
#include "fabric/wire.h"
#include "transfer/policy/tiers.h"
#include "transfer/rail_messages.h"
#include "transfer/types.h"

namespace braid::transfer {

inline constexpr size_t kFrameBytesMax = 1 << 20;
inline constexpr size_t kRailsInDescriptionMax = 64;
inline constexpr size_t kRangesInDescriptionMax = 32768;
inline constexpr size_t kPlacesInDescriptionMax = 256;
inline constexpr size_t kExportsMax = 256;
inline constexpr size_t kNodesInDescriptionMax = 64;
inline constexpr size_t kNameBytesMax = 255;

struct RailDescription {
  std::string provider;
  std::string host_address;        ///< for display
  double gbps = 1;                 ///< what the NIC claims, 10^9 bytes a second
  Place place;                     ///< of its NIC; version 1 has only the node
  std::vector<std::byte> address;  ///< Rail::address
};
/// The common part of ranges at one place.
struct PlaceDescription {
  Place place;
  uint64_t rails = ~uint64_t{0};  ///< bits: the owner's rails that reach it
  auto operator<=>(const PlaceDescription&) const = default;
};
struct RangeDescription {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  Rights rights = kNoRights;
  uint16_t place = 0;  ///< an index of Description::places; beyond its end: unknown
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
  fabric::Origin origin{};  ///< its process, for processes of the same host
  std::vector<RailDescription> rails;
  std::vector<PlaceDescription> places;  ///< since version 2
  std::vector<RangeDescription> ranges;  ///< at most kRangesInDescriptionMax, the lowest
  uint64_t range_count = 0;              ///< all of them
  std::vector<ExportDescription> exports;
  topology::NumaDistances distances;  ///< since version 4; of at most kNodesInDescriptionMax nodes
};

struct Question {
  uint64_t nonce = 0;
  /// All zero: any engine that listens there. Otherwise only this one.
  Incarnation incarnation{};
  uint16_t version = kVersion;  ///< of the question and of its answer
};
struct Answer {
  uint64_t nonce = 0;
  /// kNoSegment: another engine listens there now. kOtherVersion: it does not know the question's
  /// version; the description says which ones it knows.
  Cause cause = Cause::kNone;
  Description description;
};

std::vector<std::byte> encode(const Question& question, const fabric::Secret& secret);
std::vector<std::byte> encode(const Answer& answer, const fabric::Secret& secret,
                              uint16_t version = kVersion);
Result<Question> decode_question(Bytes bytes, const fabric::Secret& secret);
/// The answer to a question that cannot be read since it has another version or another secret. Who
/// has another secret cannot read it, and so sees what is wrong. Empty: it is no question.
std::vector<std::byte> refuse(Bytes question, const Status& wrong, const fabric::Secret& secret);
Result<Answer> decode_answer(Bytes bytes, const fabric::Secret& secret);

/// "5f3c…", 32 digits.
std::string to_hex(const Incarnation& incarnation);
Result<Incarnation> incarnation_of_hex(std::string_view hex);

}  // namespace braid::transfer
