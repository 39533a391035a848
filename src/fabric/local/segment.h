// Memory that two processes share: a queue in each direction, and a board, on which the owner lists
// the regions that may be written. The other process may be faulty, so its data is copied out
// before it is checked.
//
// A queue has one producer and one consumer. Neither blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/local/socket.h"

namespace braid::fabric::local {

inline constexpr uint64_t kQueueBytes = 512 << 10;  // a power of two
inline constexpr uint32_t kSlots = 4096;

struct Queue {
  alignas(64) std::atomic<uint64_t> head;  // of bytes ever
  alignas(64) std::atomic<uint64_t> tail;
  alignas(64) std::byte bytes[kQueueBytes];
};

struct Shared {
  Queue to_owner;
  Queue to_writer;
  alignas(64) std::atomic<uint64_t> board[kSlots];  ///< the key of a region that may be written
};

class Producer {
 public:
  explicit Producer(Queue* queue) : queue_(queue) {}
  /// False: there is no room now.
  bool put(uint32_t kind, Bytes first, Bytes second = {});

 private:
  void write(uint64_t at, Bytes bytes);
  Queue* queue_;
  uint64_t tail_ = 0;
};

class Consumer {
 public:
  explicit Consumer(Queue* queue) : queue_(queue) {}
  struct Record {
    uint32_t kind;
    std::vector<std::byte> bytes;
  };
  std::optional<Record> take();
  /// The producer has written an invalid record.
  bool is_broken() const { return is_broken_; }

 private:
  void read(uint64_t at, MutableBytes bytes) const;
  Queue* queue_;
  uint64_t head_ = 0;
  bool is_broken_ = false;
};

/// One process's mapping of the shared memory.
class Segment {
 public:
  static Result<Segment> create();
  static Result<Segment> open(File file);
  Segment(Segment&& other) noexcept
      : file_(std::move(other.file_)), shared_(std::exchange(other.shared_, nullptr)) {}
  Segment& operator=(Segment&& other) = delete;
  ~Segment();

  Shared& shared() const { return *shared_; }
  int file() const { return file_.get(); }

 private:
  explicit Segment(File file) : file_(std::move(file)) {}
  bool map();

  File file_;
  Shared* shared_ = nullptr;
};

}  // namespace braid::fabric::local
