// Frames that stand alone, such as questions of the directory and their answers. A frame is "BRTF",
// the version in 2 bytes, the kind in 1 byte, the fields (codec.h), and the seal of all bytes
// before it (fabric/seal.h), made with the secret if there is one.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/seal.h"
#include "transfer/codec.h"
#include "transfer/failure.h"
#include "transfer/rail_messages.h"

namespace braid::transfer {

enum class SealedKind : uint8_t {
  kQuestion = 1,
  kAnswer = 2,
  kMemoryQuestion = 3,
  kMemoryAnswer = 4,
  kReportQuestion = 5,
  kReportAnswer = 6
};

inline constexpr char kSealedMagic[4] = {'B', 'R', 'T', 'F'};
inline constexpr size_t kSealedHeadBytes = 7;

/// `write(writer)` writes the fields.
template <typename Write>
std::vector<std::byte> seal(SealedKind kind, uint16_t version, const fabric::Secret& secret,
                            const Write& write) {
  Writer writer;
  for (const char letter : kSealedMagic) writer.number(static_cast<uint8_t>(letter));
  writer.number(version);
  writer.number(static_cast<uint8_t>(kind));
  write(writer);
  std::vector<std::byte> bytes = writer.take();
  const fabric::Seal sealed = secret.seal(bytes);
  bytes.insert(bytes.end(), sealed.begin(), sealed.end());
  return bytes;
}

/// `read(reader, version)` reads the fields.
template <typename Read>
Status open_sealed(SealedKind kind, Bytes bytes, const fabric::Secret& secret, const Read& read) {
  if (bytes.size() < kSealedHeadBytes + fabric::kSealBytes)
    return Status::error("what came is too short");
  if (std::memcmp(bytes.data(), kSealedMagic, sizeof kSealedMagic) != 0)
    return failure(Cause::kNoSegment, "whoever listens there does not speak braid's protocol");
  const Bytes body = bytes.first(bytes.size() - fabric::kSealBytes);
  if (!secret.is_sealed(body, bytes.last(fabric::kSealBytes)))
    return failure(Cause::kOtherSecret,
                   "the other side has another secret, or what came was damaged",
                   "Let BRAID_FABRIC_SECRET_FILE name the same secret on both sides");
  Reader reader(body.subspan(sizeof kSealedMagic));
  uint16_t version = 0;
  uint8_t said = 0;
  reader.number(version);
  reader.number(said);
  if (version < kVersionOldest || version > kVersion)
    return failure(Cause::kOtherVersion,
                   "the other side speaks version " + std::to_string(version) +
                       " of the protocol, and this one " + std::to_string(kVersionOldest) + " to " +
                       std::to_string(kVersion));
  read(reader, version);
  if (said != static_cast<uint8_t>(kind) || !reader.ok() || !reader.is_at_end())
    return Status::error("what came is cut off, or too long");
  return {};
}

}  // namespace braid::transfer
