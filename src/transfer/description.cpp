#include "transfer/description.h"

#include <charconv>
#include <cstdio>
#include <utility>

#include "base/try.h"
#include "fabric/origin_fields.h"
#include "transfer/failure.h"
#include "transfer/sealed.h"

namespace braid::transfer {
namespace {

template <typename Archive, typename I>
void incarnation_field(Archive& archive, I& incarnation) {
  for (auto& half : incarnation) archive.number(half);
}

template <typename Archive, typename P>
void place_field(Archive& archive, P& place) {
  archive.number(place.is_gpu);
  archive.number(place.numa_node);
  archive.number(place.pcie_switch);
  archive.number(place.gpu);
}

template <typename Archive, typename D>
void distances_field(Archive& archive, D& distances) {
  const auto number = [&](auto& each) { archive.number(each); };
  archive.list(distances.nodes, kNodesInDescriptionMax, number);
  archive.list(distances.rows, kNodesInDescriptionMax,
               [&](auto& row) { archive.list(row, kNodesInDescriptionMax, number); });
}

template <typename Archive, typename D>
void description_fields(Archive& archive, D& description, uint16_t version) {
  incarnation_field(archive, description.incarnation);
  archive.bytes(description.name, kNameBytesMax);
  archive.number(description.version_oldest);
  archive.number(description.version);
  fabric::origin_fields(archive, description.origin);
  archive.list(description.rails, kRailsInDescriptionMax, [&](auto& rail) {
    archive.bytes(rail.provider, fabric::kProviderBytesMax);
    archive.bytes(rail.host_address, kNameBytesMax);
    auto mbps = static_cast<uint64_t>(rail.gbps * 1000);  // whole numbers alone travel
    archive.number(mbps);
    if constexpr (!std::is_const_v<std::remove_reference_t<decltype(rail)>>)
      rail.gbps = static_cast<double>(mbps) / 1000;
    if (version == 1)
      archive.number(rail.place.numa_node);
    else
      place_field(archive, rail.place);
    archive.bytes(rail.address, 4096);
  });
  if (version > 1)
    archive.list(description.places, kPlacesInDescriptionMax, [&](auto& each) {
      place_field(archive, each.place);
      archive.number(each.rails);
    });
  archive.list(description.ranges, kRangesInDescriptionMax, [&](auto& range) {
    archive.number(range.address);
    archive.number(range.size_bytes);
    archive.number(range.rights);
    if (version > 1) archive.number(range.place);
  });
  archive.number(description.range_count);
  archive.list(description.exports, kExportsMax, [&](auto& each) {
    archive.bytes(each.name, kNameBytesMax);
    archive.number(each.rights);
  });
  if (version > 3) distances_field(archive, description.distances);
}

template <typename Archive, typename Q>
void fields_of(Archive& archive, Q& question, uint16_t version) {
  archive.number(question.nonce);
  if constexpr (std::is_same_v<std::remove_const_t<Q>, Question>) {
    incarnation_field(archive, question.incarnation);
  } else {
    archive.number(question.cause);
    description_fields(archive, question.description, version);
  }
}

template <typename T>
std::vector<std::byte> seal(SealedKind kind, const T& body, uint16_t version,
                            const fabric::Secret& secret) {
  return seal(kind, version, secret, [&](Writer& writer) { fields_of(writer, body, version); });
}

template <typename T>
Result<T> open(SealedKind kind, Bytes bytes, const fabric::Secret& secret) {
  T value;
  BRAID_TRY(open_sealed(kind, bytes, secret, [&](Reader& reader, uint16_t version) {
    fields_of(reader, value, version);
    if constexpr (std::is_same_v<T, Question>) value.version = version;
  }));
  return value;
}

}  // namespace

std::vector<std::byte> encode(const Question& question, const fabric::Secret& secret) {
  return seal(SealedKind::kQuestion, question, question.version, secret);
}
std::vector<std::byte> encode(const Answer& answer, const fabric::Secret& secret,
                              uint16_t version) {
  return seal(SealedKind::kAnswer, answer, version, secret);
}
Result<Question> decode_question(Bytes bytes, const fabric::Secret& secret) {
  return open<Question>(SealedKind::kQuestion, bytes, secret);
}
std::vector<std::byte> refuse(Bytes question, const Status& wrong, const fabric::Secret& secret) {
  Answer answer;
  answer.cause = cause_of(wrong);
  if (answer.cause != Cause::kOtherVersion && answer.cause != Cause::kOtherSecret) return {};
  // The nonce comes first in every version. Nothing that a stranger chose is sealed.
  if (answer.cause == Cause::kOtherVersion)
    Reader(question.subspan(kSealedHeadBytes)).number(answer.nonce);
  return encode(answer, secret);
}
Result<Answer> decode_answer(Bytes bytes, const fabric::Secret& secret) {
  return open<Answer>(SealedKind::kAnswer, bytes, secret);
}

std::string to_hex(const Incarnation& incarnation) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx",
                static_cast<unsigned long long>(incarnation[0]),
                static_cast<unsigned long long>(incarnation[1]));
  return text;
}

Result<Incarnation> incarnation_of_hex(std::string_view hex) {
  Incarnation incarnation{};
  bool is_whole = hex.size() == 32;
  for (size_t half = 0; is_whole && half < 2; ++half) {
    const char* first = hex.data() + 16 * half;
    const auto read = std::from_chars(first, first + 16, incarnation[half], 16);
    is_whole = read.ec == std::errc() && read.ptr == first + 16;
  }
  if (!is_whole)
    return Status::error("'" + std::string(hex) + "' is no incarnation",
                         "It is 32 hexadecimal digits");
  return incarnation;
}

}  // namespace braid::transfer
