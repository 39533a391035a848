// What two ends of the fake network say to each other: one datagram each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace braid::fabric::fake {

enum class Kind : uint8_t {
  kSend,
  kWrite,
  kRead,       ///< asks for a kReadReply
  kReadReply,  ///< bytes for the posting that `answers` names
  kAck,        ///< the posting that `answers` names has ended
  kPing,       ///< is anybody there?
  kConnect,
  kAccept,
  kReject,
  kBreak,  ///< the connection is broken: what the peer has under way never gets an answer
  kDisconnect,
};

/// As the numbers of ibv_wc_status.
enum class Outcome : uint8_t {
  kOk = 0,
  kLocalProtection = 4,
  kFlushed = 5,
  kRemoteAccess = 10,
  kPeerGone = 12,
};

struct Header {
  Kind kind = Kind::kPing;
  Outcome outcome = Outcome::kOk;
  uint8_t has_immediate = 0;
  uint32_t immediate = 0;
  uint32_t pieces = 1;    // of the posting
  uint64_t posting = 0;   // the sender's number
  uint64_t answers = 0;   // the receiver's number
  uint64_t sequence = 0;  // of a message
  uint64_t address = 0;   // of the posting, at the receiver
  uint64_t key = 0;
  uint64_t size_bytes = 0;    // of the posting
  uint64_t offset_bytes = 0;  // of this piece
};

struct Packet {
  std::string from;
  Header header;
  std::vector<std::byte> bytes;
};

}  // namespace braid::fabric::fake
