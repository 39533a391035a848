#include "transfer/rail_messages.h"

#include <type_traits>
#include <utility>

namespace braid::transfer {
namespace {

template <typename M, typename Body>
inline constexpr bool kIs = std::is_same_v<std::remove_const_t<M>, Body>;

/// A cause that owners say, and that this version knows.
bool is_known(Cause cause) {
  return cause <= kLastCause || (is_of_storage(cause) && known_in(kVersion, cause) == cause);
}

template <typename Archive, typename Told>
void cause(Archive& archive, Told& told) {
  archive.number(told);
  if constexpr (!std::is_const_v<Told>)
    if (!is_known(told)) archive.fail();
}

template <typename Archive, typename M>
void fields(Archive& archive, M& m) {
  if constexpr (kIs<M, Hello>) {
    for (auto& half : m.incarnation) archive.number(half);
    archive.number(m.engine);
    archive.number(m.generation);
    archive.number(m.version_oldest);
    archive.number(m.version);
  } else if constexpr (kIs<M, GrantRequest>) {
    archive.number(m.token);
    archive.number(m.address);
    archive.number(m.size_bytes);
  } else if constexpr (kIs<M, GrantAnswer>) {
    archive.number(m.token);
    cause(archive, m.cause);
    archive.number(m.address);
    archive.number(m.size_bytes);
    archive.bytes(m.descriptor, kDescriptorBytesMax);
  } else if constexpr (kIs<M, Lend>) {
    archive.number(m.number);
    archive.bytes(m.descriptor, kDescriptorBytesMax);
  } else if constexpr (kIs<M, Lent>) {
    archive.number(m.number);
    cause(archive, m.cause);
  } else if constexpr (kIs<M, ReadRequest>) {
    archive.number(m.id);
    archive.number(m.file);
    archive.number(m.address);
    archive.number(m.size_bytes);
    archive.number(m.lent);
    archive.number(m.offset_bytes);
    archive.number(m.immediate);
  } else if constexpr (kIs<M, SmallRead>) {
    archive.number(m.id);
    archive.number(m.address);
    archive.number(m.size_bytes);
  } else if constexpr (kIs<M, Reads>) {
    archive.list(m.reads, kReadsInMessage, [&](auto& each) { fields(archive, each); });
  } else if constexpr (kIs<M, Refusal>) {
    archive.number(m.id);
    cause(archive, m.cause);
    if constexpr (!std::is_const_v<M>)
      if (m.cause == Cause::kNone) archive.fail();
  } else if constexpr (kIs<M, Refused>) {
    archive.list(m.refusals, kReadsInMessage, [&](auto& each) { fields(archive, each); });
  } else if constexpr (kIs<M, FenceRequest>) {
    archive.number(m.token);
    archive.number(m.engine);
    archive.number(m.generation);
  } else if constexpr (kIs<M, FenceAnswer> || kIs<M, Ping> || kIs<M, Pong>) {
    archive.number(m.token);
  } else if constexpr (kIs<M, ReadGivenUp> || kIs<M, WriteGivenUp>) {
    archive.number(m.id);
  } else if constexpr (kIs<M, Notification>) {
    archive.number(m.sequence);
    archive.bytes(m.name, kNotificationBytesMax);
    archive.bytes(m.payload, kNotificationBytesMax);
  } else if constexpr (kIs<M, NotificationAnswer>) {
    archive.number(m.sequence);
    cause(archive, m.cause);
  } else if constexpr (kIs<M, FileOpen>) {
    archive.number(m.token);
    archive.number(m.wanted);
    archive.bytes(m.path, kPathBytesMax);
  } else if constexpr (kIs<M, FileOpened>) {
    archive.number(m.token);
    cause(archive, m.cause);
    archive.number(m.file);
    archive.number(m.size_bytes);
  } else if constexpr (kIs<M, StageAnswer>) {
    cause(archive, m.cause);
    archive.number(m.size_bytes);
    archive.bytes(m.descriptor, kDescriptorBytesMax);
  } else if constexpr (kIs<M, FileWrite>) {
    archive.number(m.id);
    archive.number(m.file);
    archive.number(m.position);
    archive.number(m.size_bytes);
    archive.number(m.offset_bytes);
  } else if constexpr (kIs<M, FileWritten> || kIs<M, SmallReadAnswer>) {
    archive.number(m.id);
    cause(archive, m.cause);
  } else {
    static_assert(kIs<M, Leaving> || kIs<M, StageRequest>);
  }
}

template <size_t index = 0>
RailMessage message_of_kind(uint8_t kind) {
  if constexpr (index + 1 < std::variant_size_v<RailMessage>)
    if (kind != index) return message_of_kind<index + 1>(kind);
  return RailMessage(std::in_place_index<index>);
}

}  // namespace

std::vector<std::byte> encode(const RailMessage& message) {
  Writer writer;
  writer.number(static_cast<uint8_t>(message.index()));
  std::visit([&](const auto& body) { fields(writer, body); }, message);
  return writer.take();
}

Result<RailMessage> decode_rail_message(Bytes bytes) {
  Reader reader(bytes);
  uint8_t kind = 0;
  reader.number(kind);
  if (kind >= std::variant_size_v<RailMessage>)
    return Status::error("a message of a kind that this version does not know");
  RailMessage message = message_of_kind(kind);
  std::visit([&](auto& body) { fields(reader, body); }, message);
  if (!reader.ok() || !reader.is_at_end())
    return Status::error("a message that is cut off, or too long");
  return message;
}

}  // namespace braid::transfer
