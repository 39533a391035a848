// A table of processes in a small file of shared memory that belongs to one user: /dev/shm/<name>,
// mode 0600. Each process may have a row, which is its own as long as it holds a lock on it; the
// kernel lets go of the lock when the process dies, however it dies. What rows hold is the user's
// of this class to say: atomics, since others read them at any time, and no mutexes, since whoever
// has one may die. The layout is the same in all processes, or their magic differs.
//
// A forked child has no row, nor any lock: the kernel would hold those of its parent for it, too.
//
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace braid {

class SharedTable {
 public:
  static constexpr size_t kRows = 64;

  /// Makes the file if it is not there; new rows are 0. `name`: for shm_open, "/braid-1000". An
  /// error: /dev/shm is full or missing, the file is another user's, open to others, or has another
  /// magic.
  static Result<std::unique_ptr<SharedTable>> open(const std::string& name, uint64_t magic,
                                                   size_t row_bytes);
  ~SharedTable();  ///< gives the row back
  SharedTable(const SharedTable&) = delete;
  SharedTable& operator=(const SharedTable&) = delete;

  /// Takes a free row, which `clear` prepares before others can see whose it is. Nothing: all are
  /// taken. Once only.
  std::optional<size_t> claim(const std::function<void(void* row)>& clear);
  std::optional<size_t> own_row() const { return own_row_; }

  void* row(size_t index) { return rows_ + index * row_bytes_; }
  const void* row(size_t index) const { return rows_ + index * row_bytes_; }
  /// Of the row's process, which may have died; 0: a free row.
  int32_t pid(size_t index) const { return head_->pids[index].load(std::memory_order_relaxed); }
  /// The row's process lives. A system call.
  bool is_alive(size_t index) const;

  /// Another lock than those of the rows, which one process of the host has at a time. Whoever
  /// dies lets go of it.
  bool try_lock();
  void unlock();

 private:
  struct Head {
    std::atomic<uint64_t> magic;
    std::array<std::atomic<int32_t>, kRows> pids;  // together: readers look at all of them
  };
  SharedTable(int file, void* pages, size_t size_bytes, size_t row_bytes);
  static void leave_all_in_child() noexcept;

  int file_;  // -1: in a child
  Head* head_;
  std::byte* rows_;
  size_t size_bytes_;
  size_t row_bytes_;
  std::optional<size_t> own_row_;
};

}  // namespace braid
