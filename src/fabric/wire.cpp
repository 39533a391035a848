#include "fabric/wire.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace braid::fabric {
namespace {

constexpr char kMagic[4] = {'B', 'R', 'F', 'B'};

enum class Kind : uint8_t { kAddress = 1, kDescriptor = 2, kMessage = 16 };  // + the body's index

Kind message_kind(size_t body) {
  return static_cast<Kind>(static_cast<size_t>(Kind::kMessage) + body);
}

// One description of each structure serves writing and reading: fields(archive, structure).

class Writer {
 public:
  explicit Writer(Kind kind) {
    for (char letter : kMagic) bytes_.push_back(static_cast<std::byte>(letter));
    number(kVersion);
    number(static_cast<uint8_t>(kind));
  }

  template <typename Number>
  void number(const Number& value) {
    for (size_t i = 0; i < sizeof value; ++i)
      bytes_.push_back(static_cast<std::byte>(static_cast<uint64_t>(value) >> 8 * i));
  }
  template <typename Container>
  void bytes(const Container& values, size_t) {
    number(static_cast<uint16_t>(values.size()));
    for (const auto value : values) bytes_.push_back(static_cast<std::byte>(value));
  }
  template <typename T, typename Each>
  void list(const std::vector<T>& values, size_t, const Each& each) {
    number(static_cast<uint16_t>(values.size()));
    for (const T& value : values) each(value);
  }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// After the first thing that does not fit, all that is read is zero, and `ok` is false.
class Reader {
 public:
  explicit Reader(Bytes bytes) : rest_(bytes) {
    for (char letter : kMagic) {
      uint8_t read = 0;
      number(read);
      ok_ = ok_ && read == static_cast<uint8_t>(letter);
    }
    number(version_);
    number(kind_);
  }

  template <typename Number>
  void number(Number& value) {
    uint64_t read = 0;
    const Bytes from = take(sizeof value);
    for (size_t i = 0; i < from.size(); ++i) read |= static_cast<uint64_t>(from[i]) << 8 * i;
    if (std::is_same_v<Number, bool> && read > 1) ok_ = false;
    value = static_cast<Number>(read);
  }
  template <typename Container>
  void bytes(Container& values, size_t count_max) {
    const Bytes from = take(count(count_max));
    values.resize(from.size());
    if (!from.empty()) std::memcpy(values.data(), from.data(), from.size());
  }
  template <typename T, typename Each>
  void list(std::vector<T>& values, size_t count_max, const Each& each) {
    values.resize(count(count_max));
    for (T& value : values) each(value);
  }

  uint8_t kind() const { return kind_; }
  bool is_of_known_version() const { return version_ >= kVersionOldest && version_ <= kVersion; }
  uint16_t version() const { return version_; }
  bool ok() const { return ok_; }
  bool is_at_end() const { return rest_.empty(); }

 private:
  size_t count(size_t count_max) {
    uint16_t count = 0;
    number(count);
    if (count > count_max) ok_ = false;
    return ok_ ? count : 0;
  }
  Bytes take(size_t size_bytes) {
    if (!ok_ || size_bytes > rest_.size()) {
      ok_ = false;
      return {};
    }
    const Bytes taken = rest_.first(size_bytes);
    rest_ = rest_.subspan(size_bytes);
    return taken;
  }

  Bytes rest_;
  bool ok_ = true;
  uint16_t version_ = 0;
  uint8_t kind_ = 0;
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

template <typename Archive, typename D>
void descriptor_fields(Archive& archive, D& descriptor) {
  archive.number(descriptor.owner);
  archive.number(descriptor.writer);
  archive.number(descriptor.grant);
  archive.number(descriptor.size_bytes);
  archive.list(descriptor.rails, kRailsMax, [&](auto& range) { range_fields(archive, range); });
}

template <typename Archive, typename Body>
void body_fields(Archive& archive, Body& body) {
  using Plain = std::remove_const_t<Body>;
  if constexpr (std::is_same_v<Plain, Hello>) address_fields(archive, body.address);
  if constexpr (std::is_same_v<Plain, Data>) archive.bytes(body.payload, kPayloadBytesMax);
  if constexpr (std::is_same_v<Plain, Hello> || std::is_same_v<Plain, Welcome> ||
                std::is_same_v<Plain, Credit>)
    archive.number(body.credits);
  if constexpr (std::is_same_v<Plain, Revoke> || std::is_same_v<Plain, Revoked>)
    archive.number(body.grant);
  if constexpr (std::is_same_v<Plain, Revoke>) archive.number(body.oldest_live);
  if constexpr (std::is_same_v<Plain, Revoked>) archive.number(body.is_clean);
}

Status check(const Reader& reader, const char* what) {
  const std::string subject = what;
  if (!reader.is_of_known_version())
    return Status::error("this " + subject + " is of version " + std::to_string(reader.version()) +
                             "; this is version " + std::to_string(kVersion),
                         "Use versions of braid that are next to each other");
  if (!reader.ok()) return Status::error("these bytes are no " + subject + ", or a part of one");
  if (!reader.is_at_end()) return Status::error("something follows this " + subject);
  return {};
}

/// Fills `body` with the alternative of this number, if there is one.
template <size_t Index = 0>
void read_body(Reader& reader, size_t wanted, decltype(Message::body)& body) {
  if constexpr (Index < std::variant_size_v<decltype(Message::body)>) {
    if (Index != wanted) return read_body<Index + 1>(reader, wanted, body);
    body_fields(reader, body.emplace<Index>());
  }
}

}  // namespace

std::vector<std::byte> encode(const Address& address) {
  Writer writer(Kind::kAddress);
  address_fields(writer, address);
  return writer.take();
}

std::vector<std::byte> encode(const Descriptor& descriptor) {
  Writer writer(Kind::kDescriptor);
  descriptor_fields(writer, descriptor);
  return writer.take();
}

std::vector<std::byte> encode(const Message& message) {
  Writer writer(message_kind(message.body.index()));
  writer.number(message.from);
  writer.number(message.to);
  std::visit([&](const auto& body) { body_fields(writer, body); }, message.body);
  return writer.take();
}

Result<Address> decode_address(Bytes bytes) {
  Reader reader(bytes);
  Address address;
  if (reader.kind() != static_cast<uint8_t>(Kind::kAddress))
    return Status::error("these bytes are no address of an engine");
  address_fields(reader, address);
  if (Status wrong = check(reader, "address"); !wrong.ok()) return wrong;
  if (address.rails.empty()) return Status::error("this address has no network interface");
  if (address.slicing.slice_bytes == 0 || address.slicing.slices_max == 0)
    return Status::error("this address has slices of no size");
  return address;
}

Result<Descriptor> decode_descriptor(Bytes bytes) {
  Reader reader(bytes);
  Descriptor descriptor;
  if (reader.kind() != static_cast<uint8_t>(Kind::kDescriptor))
    return Status::error("these bytes are no descriptor");
  descriptor_fields(reader, descriptor);
  if (Status wrong = check(reader, "descriptor"); !wrong.ok()) return wrong;
  return descriptor;
}

Result<Message> decode_message(Bytes bytes) {
  Reader reader(bytes);
  Message message;
  const size_t body = size_t{reader.kind()} - static_cast<size_t>(Kind::kMessage);
  if (body >= std::variant_size_v<decltype(Message::body)>)
    return Status::error("these bytes are no message");
  reader.number(message.from);
  reader.number(message.to);
  read_body(reader, body, message.body);
  if (Status wrong = check(reader, "message"); !wrong.ok()) return wrong;
  return message;
}

}  // namespace braid::fabric
