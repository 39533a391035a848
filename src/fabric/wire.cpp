#include "fabric/wire.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/byte_codec.h"
#include "fabric/origin_fields.h"
#include "fabric/versions.h"

namespace braid::fabric {
namespace {

constexpr char kMagic[4] = {'B', 'R', 'F', 'B'};
constexpr uint16_t kFirstSealed = 2;

enum class Kind : uint8_t {
  kAddress = 1,
  kDescriptor = 2,
  kMessage = 16,  // + the body's index
  kDataWithBytes = 25,
};
static_assert(
    std::is_same_v<DataWithBytes, std::variant_alternative_t<9, decltype(Message::body)>>);

Kind message_kind(size_t body) {
  return static_cast<Kind>(static_cast<size_t>(Kind::kMessage) + body);
}

class Writer : public ByteWriter<uint16_t> {
 public:
  Writer(Kind kind, uint16_t version) : version_(version) {
    for (char letter : kMagic) number(static_cast<uint8_t>(letter));
    number(version);
    number(static_cast<uint8_t>(kind));
  }

  uint16_t version() const { return version_; }
  std::vector<std::byte> take(const Secret& secret) {
    if (version_ >= kFirstSealed)
      for (const std::byte byte : secret.seal(written())) number(static_cast<uint8_t>(byte));
    return ByteWriter::take();
  }

 private:
  uint16_t version_;
};

class Reader : public ByteReader<uint16_t> {
 public:
  explicit Reader(Bytes bytes) : ByteReader(bytes) {
    for (char letter : kMagic) {
      uint8_t read = 0;
      number(read);
      if (read != static_cast<uint8_t>(letter)) fail();
    }
    number(version_);
    number(kind_);
    if (kind_ == static_cast<uint8_t>(Kind::kDataWithBytes)) number(following_bytes_);
    leave_out(following_bytes_);
    if (version_ >= kFirstSealed) leave_out(kSealBytes);
  }

  uint8_t kind() const { return kind_; }
  bool is_of_known_version() const { return version_ >= kVersionOldest && version_ <= kVersion; }
  uint16_t version() const { return version_; }
  /// Behind the seal.
  uint16_t following_bytes() const { return following_bytes_; }

 private:
  uint16_t version_ = 0;
  uint8_t kind_ = 0;
  uint16_t following_bytes_ = 0;
};

template <typename Archive, typename Range>
void range_fields(Archive& archive, Range& range) {
  archive.number(range.base);
  archive.number(range.key);
}

template <typename Archive, typename A>
void address_fields(Archive& archive, A& address) {
  archive.number(address.engine);
  archive.number(address.slicing.slice_bytes);
  archive.number(address.slicing.slices_max);
  archive.list(address.rails, kRailsMax, [&](auto& rail) {
    archive.bytes(rail.provider, kProviderBytesMax);
    archive.bytes(rail.name, kAddressBytesMax);
    range_fields(archive, rail.scratch);
  });
}

/// The fields that Hello and Welcome have in common.
template <typename Archive, typename Body>
void arrival_fields(Archive& archive, Body& body) {
  archive.number(body.credits);
  if (archive.version() < 2) return;
  archive.list(body.doors, kRailsMax, [&](auto& door) {
    archive.bytes(door.first, kAddressBytesMax);
    if (archive.version() < 3) return;
    archive.list(door.further, kEndpointsMax - 1,
                 [&](auto& address) { archive.bytes(address, kAddressBytesMax); });
  });
  origin_fields(archive, body.origin);
}

template <typename Archive, typename S>
void session_fields(Archive& archive, S& session) {
  if (archive.version() < 2) return;
  archive.number(session.from);
  archive.number(session.to);
  archive.number(session.sequence);
}

template <typename Archive, typename D>
void descriptor_fields(Archive& archive, D& descriptor) {
  archive.number(descriptor.owner);
  archive.number(descriptor.writer);
  archive.number(descriptor.grant);
  archive.number(descriptor.size_bytes);
  archive.list(descriptor.rails, kRailsMax, [&](auto& range) { range_fields(archive, range); });
  if (archive.version() >= 2) archive.number(descriptor.session);
}

template <typename Archive, typename Body>
void body_fields(Archive& archive, Body& body) {
  using Plain = std::remove_const_t<Body>;
  if constexpr (std::is_same_v<Plain, Hello>) address_fields(archive, body.address);
  if constexpr (std::is_same_v<Plain, Data>) archive.bytes(body.payload, kPayloadBytesMax);
  if constexpr (std::is_same_v<Plain, DataWithBytes>)
    archive.bytes(body.payload, kPayloadBytesBeforeMax);
  if constexpr (std::is_same_v<Plain, Hello> || std::is_same_v<Plain, Welcome>)
    arrival_fields(archive, body);
  if constexpr (std::is_same_v<Plain, Credit>) archive.number(body.credits);
  if constexpr (std::is_same_v<Plain, Revoke> || std::is_same_v<Plain, Revoked>)
    archive.number(body.grant);
  if constexpr (std::is_same_v<Plain, Revoke>) archive.number(body.oldest_live);
  if constexpr (std::is_same_v<Plain, Revoked>) archive.number(body.is_clean);
  if constexpr (std::is_same_v<Plain, Goodbye>) {
    archive.number(body.why);
    if (archive.version() >= 3) archive.number(body.awaits_answer);
  }
  if constexpr (std::is_same_v<Plain, RailsRetired>) {
    archive.number(body.rails);
    archive.number(body.change);
  }
}

Status check(const Reader& reader, Bytes bytes, const Secret& secret, const char* what) {
  const std::string subject = what;
  if (!reader.is_of_known_version())
    return other_version("this " + subject + " is of version " + std::to_string(reader.version()) +
                             "; this is version " + std::to_string(kVersion),
                         "Use versions of braid that are next to each other");
  if (!is_sealed(bytes, secret))
    return secret.is_set()
               ? Status::error("this " + subject +
                                   " was altered or cut, or its engine has another secret or none",
                               "Give all engines the same secret")
               : Status::error(
                     "this " + subject + " was altered or cut, or its engine has a secret",
                     "Give this engine the same secret");
  if (!reader.ok()) return Status::error("these bytes are no " + subject + ", or a part of one");
  if (!reader.is_at_end()) return Status::error("something follows this " + subject);
  return {};
}

/// Bodies that later versions have added.
bool is_in_version(size_t body, uint16_t version) {
  constexpr size_t kOfVersion1 = 6;
  return version >= 2 || body < kOfVersion1;
}

/// Fills `body` with the alternative of this number, if there is one.
template <size_t Index = 0>
void read_body(Reader& reader, size_t wanted, decltype(Message::body)& body) {
  if constexpr (Index < std::variant_size_v<decltype(Message::body)>) {
    if (Index != wanted) return read_body<Index + 1>(reader, wanted, body);
    body_fields(reader, body.emplace<Index>());
  }
}

Status check_values(const Address& address) {
  if (address.rails.empty()) return Status::error("this address has no network interface");
  if (address.slicing.slice_bytes == 0 || address.slicing.slices_max == 0)
    return Status::error("this address has slices of no size");
  return {};
}

}  // namespace

bool is_sealed(Bytes bytes, const Secret& secret) {
  const Reader reader(bytes);
  if (reader.version() < kFirstSealed) return !secret.is_set();
  if (bytes.size() < kSealBytes + reader.following_bytes()) return false;
  bytes = bytes.first(bytes.size() - reader.following_bytes());
  return secret.is_sealed(bytes.first(bytes.size() - kSealBytes), bytes.last(kSealBytes));
}

std::vector<std::byte> encode(const Address& address, const Secret& secret) {
  Writer writer(Kind::kAddress, address.version);
  address_fields(writer, address);
  return writer.take(secret);
}

std::vector<std::byte> encode(const Descriptor& descriptor, const Secret& secret) {
  Writer writer(Kind::kDescriptor, descriptor.version);
  descriptor_fields(writer, descriptor);
  return writer.take(secret);
}

std::vector<std::byte> encode(const Message& message, const Secret& secret, Bytes following) {
  Writer writer(message_kind(message.body.index()), message.version);
  if (const auto* data = std::get_if<DataWithBytes>(&message.body))
    writer.number(data->following_bytes);
  writer.number(message.from);
  writer.number(message.to);
  session_fields(writer, message.session);
  std::visit([&](const auto& body) { body_fields(writer, body); }, message.body);
  std::vector<std::byte> bytes = writer.take(secret);
  bytes.insert(bytes.end(), following.begin(), following.end());
  return bytes;
}

Result<Address> decode_address(Bytes bytes, const Secret& secret) {
  Reader reader(bytes);
  Address address;
  if (reader.kind() != static_cast<uint8_t>(Kind::kAddress))
    return Status::error("these bytes are no address of an engine");
  address_fields(reader, address);
  address.version = reader.version();
  if (Status wrong = check(reader, bytes, secret, "address"); !wrong.ok()) return wrong;
  if (Status wrong = check_values(address); !wrong.ok()) return wrong;
  return address;
}

Result<Descriptor> decode_descriptor(Bytes bytes, const Secret& secret) {
  Reader reader(bytes);
  Descriptor descriptor;
  if (reader.kind() != static_cast<uint8_t>(Kind::kDescriptor))
    return Status::error("these bytes are no descriptor");
  descriptor_fields(reader, descriptor);
  descriptor.version = reader.version();
  if (Status wrong = check(reader, bytes, secret, "descriptor"); !wrong.ok()) return wrong;
  return descriptor;
}

Result<Message> decode_message(Bytes bytes, const Secret& secret) {
  Reader reader(bytes);
  Message message;
  const size_t body = size_t{reader.kind()} - static_cast<size_t>(Kind::kMessage);
  if (!is_in_version(body, reader.version()) ||
      body >= std::variant_size_v<decltype(Message::body)>)
    return Status::error("these bytes are no message");
  message.version = reader.version();
  reader.number(message.from);
  reader.number(message.to);
  session_fields(reader, message.session);
  read_body(reader, body, message.body);
  if (Status wrong = check(reader, bytes, secret, "message"); !wrong.ok()) return wrong;
  if (reader.following_bytes() > kFollowingBytesMax)
    return Status::error("too many bytes follow this message");
  if (DataWithBytes* data = std::get_if<DataWithBytes>(&message.body))
    data->following_bytes = reader.following_bytes();
  if (Hello* hello = std::get_if<Hello>(&message.body)) {
    hello->address.version = message.version;
    if (Status wrong = check_values(hello->address); !wrong.ok()) return wrong;
  }
  if (const Goodbye* goodbye = std::get_if<Goodbye>(&message.body);
      goodbye != nullptr && goodbye->why > Goodbye::Why::kSilence)
    return Status::error("this goodbye has no known cause");
  return message;
}

}  // namespace braid::fabric
