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
#include "host/shared_pages.h"

namespace braid::fabric::local {

inline constexpr uint64_t kQueueBytes = 512 << 10;  // a power of two
inline constexpr uint32_t kSlots = 4096;

struct Queue {
  alignas(64) std::atomic<uint64_t> head;  // of bytes ever
  std::atomic<uint32_t> is_asleep;         // the consumer: whoever clears it has to ring
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
  /// Whether the consumer sleeps, and has to be told of what was put. True once for each sleep.
  bool has_to_ring();

 private:
  void write(uint64_t at, Bytes bytes);
  Queue* queue_;
  uint64_t tail_ = 0;
  bool has_put_ = false;  // since has_to_ring was asked
};

class Consumer {
 public:
  explicit Consumer(Queue* queue) : queue_(queue) {}
  struct Record {
    uint32_t kind;
    std::vector<std::byte> bytes;
  };
  std::optional<Record> take();
  /// Asks the producer to ring once it puts something. False: it has already put something.
  bool fall_asleep();
  void wake_up() { queue_->is_asleep.store(0, std::memory_order_relaxed); }
  /// The producer has written an invalid record.
  bool is_broken() const { return is_broken_; }

 private:
  void read(uint64_t at, MutableBytes bytes) const;
  Queue* queue_;
  uint64_t head_ = 0;
  bool is_broken_ = false;
};

/// One process's mapping of the shared memory. It needs no file, which child processes would keep.
class Segment {
 public:
  /// `file`: of a segment that another process has created.
  static Result<Segment> open(const File& file);

  Shared& shared() const { return *static_cast<Shared*>(pages_.memory()); }

 private:
  friend struct CreatedSegment;
  explicit Segment(MappedPages pages) : pages_(std::move(pages)) {}

  MappedPages pages_;
};

struct CreatedSegment {
  static Result<CreatedSegment> create();

  Segment segment;
  File file;  ///< for the other process
};

}  // namespace braid::fabric::local
