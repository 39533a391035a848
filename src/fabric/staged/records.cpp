#include "fabric/staged/records.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "fabric/endpoints.h"
#include "fabric/wire.h"

namespace braid::fabric::staged {
namespace {

// The mark: these letters, the version, and 0. In an address the last byte is the number of earlier
// versions that the domain speaks.
constexpr std::string_view kLetters = "BRFSTG";
constexpr size_t kVersionAt = 6;
constexpr size_t kEarlierAt = 7;
static_assert(kAddressBytesMax <= 255 &&
              kMarkBytes + kRecordBytes + kEndpointsMax * (1 + kAddressBytesMax) + kTrailerBytes <=
                  kMessageBytesMax);
static_assert(kLetters.size() == kVersionAt && kMarkBytes == kEarlierAt + 1);

/// One description of the layout serves writing and reading: `each(number)`, in order.
template <typename R, typename Each>
void numbers_of(R& record, const Each& each) {
  each(record.session);
  each(record.number);
  each(record.write);
  each(record.offset_bytes);
  each(record.size_bytes);
  each(record.total_bytes);
  each(record.address);
  each(record.key);
  each(record.slices);
}

bool has_mark(Bytes bytes) {
  return bytes.size() >= kMarkBytes &&
         std::memcmp(bytes.data(), kLetters.data(), kLetters.size()) == 0;
}

Versions versions_of(Bytes address) {
  const auto newest = static_cast<uint8_t>(address[kVersionAt]);
  return {newest, static_cast<uint8_t>(newest - static_cast<uint8_t>(address[kEarlierAt]))};
}

Status no_common_version(const std::string& theirs) {
  return fabric::no_common_version("stages memory of GPUs", theirs, kVersions);
}

Record read_record(Bytes bytes) {
  Record record;
  const uint64_t head = read_number(bytes);
  record.kind = static_cast<Kind>(head & 0xff);
  record.ok = (head >> 8 & 1) != 0;
  record.has_immediate = (head >> 9 & 1) != 0;
  record.immediate = static_cast<uint32_t>(head >> 32);
  numbers_of(record, [&](uint64_t& number) { number = read_number(bytes); });
  return record;
}

/// A list of addresses, each behind its size in one byte; or a single one without.
bool read_addresses(Bytes rest, bool is_list, Message& message) {
  do {
    if (rest.empty() || message.addresses.size() == kEndpointsMax) return false;
    const size_t size_bytes = is_list ? static_cast<size_t>(rest.front()) : rest.size();
    if (is_list) rest = rest.subspan(1);
    if (size_bytes == 0 || size_bytes > std::min(rest.size(), kAddressBytesMax)) return false;
    message.addresses.emplace_back(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(size_bytes));
    rest = rest.subspan(size_bytes);
  } while (!rest.empty());
  return true;
}

}  // namespace

std::optional<uint8_t> version_of(Bytes message) {
  if (!has_mark(message) || message[kEarlierAt] != std::byte{0}) return std::nullopt;
  const auto version = static_cast<uint8_t>(message[kVersionAt]);
  return kVersions.hold(version) ? std::optional(version) : std::nullopt;
}

void append_mark(std::vector<std::byte>& message, uint8_t version) {
  const auto* letters = reinterpret_cast<const std::byte*>(kLetters.data());
  message.insert(message.end(), letters, letters + kLetters.size());
  message.insert(message.end(), {std::byte{version}, std::byte{0}});
}

void append_number(std::vector<std::byte>& message, uint64_t number) {
  for (size_t i = 0; i < sizeof number; ++i)
    message.push_back(static_cast<std::byte>(number >> 8 * i));
}

uint64_t read_number(Bytes& rest) {
  uint64_t number = 0;
  for (size_t i = 0; i < sizeof number; ++i) number |= static_cast<uint64_t>(rest[i]) << 8 * i;
  rest = rest.subspan(sizeof number);
  return number;
}

void append(std::vector<std::byte>& message, const Record& record) {
  append_number(message, static_cast<uint64_t>(record.kind) | uint64_t{record.ok} << 8 |
                             uint64_t{record.has_immediate} << 9 |
                             uint64_t{record.immediate} << 32);
  numbers_of(record, [&](uint64_t number) { append_number(message, number); });
}

void append_addresses(std::vector<std::byte>& message, std::span<const Bytes> all) {
  for (const Bytes address : all) {
    message.push_back(static_cast<std::byte>(address.size()));
    message.insert(message.end(), address.begin(), address.end());
  }
}

std::optional<Message> read_message(Bytes bytes) {
  Message message;
  Bytes rest = bytes.subspan(kMarkBytes);
  while (rest.size() >= kRecordBytes) {
    const Record record = read_record(rest.first(kRecordBytes));
    rest = rest.subspan(kRecordBytes);
    if (record.kind < Kind::kGreeting || record.kind > Kind::kGoodbye) return std::nullopt;
    message.records.push_back(record);
    if (!has_address(record)) continue;
    const bool is_list = record.kind == Kind::kRing;
    if (message.records.size() != 1) return std::nullopt;
    return read_addresses(rest, is_list, message) ? std::optional(message) : std::nullopt;
  }
  return rest.empty() ? std::optional(message) : std::nullopt;
}

// The mark, the size of the place's address in one byte, the place's address, and the door's.
std::vector<std::byte> encode_address(Bytes place, Bytes door) {
  std::vector<std::byte> bytes;
  append_mark(bytes);
  bytes[kEarlierAt] = static_cast<std::byte>(kVersions.newest - kVersions.oldest);
  bytes.push_back(static_cast<std::byte>(place.size()));
  bytes.insert(bytes.end(), place.begin(), place.end());
  bytes.insert(bytes.end(), door.begin(), door.end());
  return bytes;
}

Result<Address> read_address(Bytes bytes) {
  if (!has_mark(bytes)) return no_common_version("version 3 or older");  // addresses had no mark
  const std::optional<uint8_t> version = kVersions.common_with(versions_of(bytes));
  if (!version) return no_common_version(versions_of(bytes).text());
  const Bytes rest = bytes.subspan(kMarkBytes);
  const size_t place_bytes = rest.empty() ? 0 : static_cast<size_t>(rest.front());
  if (place_bytes == 0 || place_bytes > rest.size() - 1)
    return Status::error("this is no address of an engine with memory of GPUs");
  const Bytes place = rest.subspan(1, place_bytes), door = rest.subspan(1 + place_bytes);
  return Address{{place.begin(), place.end()}, {door.begin(), door.end()}, *version};
}

}  // namespace braid::fabric::staged
