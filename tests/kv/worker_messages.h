// What a leader and the processes of its workers (kv_worker.cpp) have in common: one message there
// and one back at each step, through pipes, as an engine has with its workers.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "braid/kv.h"

namespace braid::kv::test {

inline constexpr Rotation::Model kModel{4, 2, 64, 2, 16};
inline constexpr uint32_t kGpuSlots = 6;
inline constexpr uint32_t kHostSlots = 24;

/// What a step does to a block: its kernels write and read whole blocks.
struct Access {
  enum Kind : uint64_t { kWrite, kRead, kReadOnHost };
  uint64_t kind;
  uint64_t slot;  ///< of the GPU, or of the host
  uint64_t word;  ///< tells the content of one block from that of another
};

/// The word at this place of a block; no two ranks have the same.
inline uint64_t word_at(uint64_t rank, uint64_t word, uint64_t place) {
  return (word << 8 ^ rank) * 0x9e3779b97f4a7c15 ^ place;
}

struct StepMessage {
  std::vector<std::byte> commands;
  std::vector<Access> accesses;
};
struct StepReply {
  std::vector<std::byte> report;
  std::vector<uint8_t> right;  ///< of each access: whether every byte was there
  std::string error;           ///< of `apply`: then the step was not launched
};

// ---- Through pipes ----

/// False: the other process is gone.
inline bool send(int pipe, const void* bytes, size_t size_bytes) {
  const auto* at = static_cast<const char*>(bytes);
  while (size_bytes > 0) {
    const ssize_t sent = write(pipe, at, size_bytes);
    if (sent <= 0) return false;
    at += sent;
    size_bytes -= static_cast<size_t>(sent);
  }
  return true;
}
inline bool receive(int pipe, void* bytes, size_t size_bytes) {
  auto* at = static_cast<char*>(bytes);
  while (size_bytes > 0) {
    const ssize_t came = read(pipe, at, size_bytes);
    if (came <= 0) return false;
    at += came;
    size_bytes -= static_cast<size_t>(came);
  }
  return true;
}
template <typename List>
bool send_list(int pipe, const List& list) {
  const uint64_t count = list.size();
  return send(pipe, &count, sizeof count) && send(pipe, list.data(), count * sizeof *list.data());
}
template <typename List>
bool receive_list(int pipe, List& list) {
  uint64_t count = 0;
  if (!receive(pipe, &count, sizeof count)) return false;
  list.resize(count);
  return receive(pipe, list.data(), count * sizeof *list.data());
}

}  // namespace braid::kv::test
