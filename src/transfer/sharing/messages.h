// How a process gets the memory that another one shares: by packets over a socket of this host that
// no file names, between processes of one user (fabric/local/socket.h).
//
//   owner -> a challenge, 8 bytes that nobody can guess
//   peer  -> MemoryQuestion, on and on
//   owner -> MemoryAnswer, with the file of what it names
//
// Questions and answers are sealed (sealed.h). Each repeats a number that the other side chose, so
// that a recorded one is of no use.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "transfer/description.h"
#include "transfer/sealed.h"
#include "transfer/sharing/sharing.h"

namespace braid::transfer {

inline constexpr size_t kChallengeBytes = 8;

struct MemoryQuestion {
  uint64_t challenge = 0;
  uint64_t nonce = 0;
  bool wants_board = false;
  uint64_t after = 0;  ///< otherwise: asks for the first memory with a larger buffer number
};
struct MemoryAnswer {
  uint64_t nonce = 0;
  SharedMemory memory = {};  ///< empty: the answer is the board, or there is no more memory
};

inline std::string sharing_socket(const Incarnation& owner) {
  return "braid-transfer-memory-" + to_hex(owner);
}

template <typename Archive, typename Q>
void question_fields(Archive& archive, Q& question) {
  archive.number(question.challenge);
  archive.number(question.nonce);
  archive.number(question.wants_board);
  archive.number(question.after);
}

template <typename Archive, typename A>
void answer_fields(Archive& archive, A& answer) {
  archive.number(answer.nonce);
  archive.number(answer.memory.buffer);
  archive.number(answer.memory.address);
  archive.number(answer.memory.size_bytes);
  archive.number(answer.memory.rights);
  archive.number(answer.memory.slot);
}

/// The fields are the same in every version.
inline std::vector<std::byte> encode(const MemoryQuestion& question, const fabric::Secret& secret) {
  return seal(SealedKind::kMemoryQuestion, kVersionOldest, secret,
              [&](Writer& writer) { question_fields(writer, question); });
}
inline std::vector<std::byte> encode(const MemoryAnswer& answer, const fabric::Secret& secret) {
  return seal(SealedKind::kMemoryAnswer, kVersionOldest, secret,
              [&](Writer& writer) { answer_fields(writer, answer); });
}

inline std::optional<MemoryQuestion> decode_memory_question(Bytes bytes,
                                                            const fabric::Secret& secret) {
  MemoryQuestion question;
  const Status opened =
      open_sealed(SealedKind::kMemoryQuestion, bytes, secret,
                  [&](Reader& reader, uint16_t) { question_fields(reader, question); });
  return opened.ok() ? std::optional(question) : std::nullopt;
}
inline std::optional<MemoryAnswer> decode_memory_answer(Bytes bytes, const fabric::Secret& secret) {
  MemoryAnswer answer;
  const Status opened =
      open_sealed(SealedKind::kMemoryAnswer, bytes, secret,
                  [&](Reader& reader, uint16_t) { answer_fields(reader, answer); });
  return opened.ok() ? std::optional(answer) : std::nullopt;
}

}  // namespace braid::transfer
