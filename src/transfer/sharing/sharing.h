// The memory that an engine shares with processes of this host and user: memory that the library
// allocated and that peers may at least read. (Memory that is mapped writable can be read too.)
//
// A board, one page that peers may read, has a word for each buffer: the buffer's number while it
// is registered. Peers read the word before and after each copy. The owner clears the word before
// it frees the memory. A peer whose copy is late then writes to pages that nobody uses any more,
// since each allocation is a file of its own, and its owner has unmapped it. So the owner need not
// wait or fence.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "host/shared_pages.h"
#include "transfer/types.h"

namespace braid::transfer {

inline constexpr size_t kSharedMax = 256;  // each takes a file descriptor of the owner
/// `node`: see MappedPages::prefer_node.
inline SharedPagesKind shared_kind(bool may_peers_write, int node = -1) {
  return {.name = "braid-transfer", .may_peers_write = may_peers_write, .node = node};
}

/// The board lies in memory of the owner. Numbers of buffers are never used twice.
struct Board {
  std::array<std::atomic<uint64_t>, kSharedMax> buffers;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// What peers are told about one buffer.
struct SharedMemory {
  uint64_t buffer = 0;  ///< 0: none
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  Rights rights = kNoRights;
  uint16_t slot = 0;  ///< its index on the board
};

/// The owner's side. Not synchronised.
class Sharing {
 public:
  /// Null: the kernel has no such files.
  static std::unique_ptr<Sharing> open();
  /// Closes all.
  ~Sharing();

  static bool can_share(Rights rights) { return (rights & kMayRead) != 0; }
  /// Shares a buffer, unless kSharedMax are shared already.
  void add(uint64_t buffer, MutableBytes memory, Rights rights, File file);
  void remove(uint64_t buffer);

  struct Shared {
    SharedMemory memory;
    int file = -1;  ///< this object keeps it
  };
  /// The first buffer with a number larger than `after`. If there is none, its number is 0.
  Shared next(uint64_t after) const;
  int board_file() const { return board_.file.get(); }

 private:
  struct Own {
    SharedMemory memory;
    File file;
  };

  explicit Sharing(SharedPages board) : board_(std::move(board)) {}
  Board& board() const { return *static_cast<Board*>(board_.pages.memory()); }

  SharedPages board_;
  std::map<uint64_t, Own> shared_;  // by buffer
};

}  // namespace braid::transfer
