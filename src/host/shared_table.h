// A table of processes in a small file of shared memory that belongs to one user: /dev/shm/<name>,
// mode 0600. Each process may have a row, which it owns as long as it holds the row's lock; the
// kernel releases the lock when the process dies in any way. The user of this class defines the
// rows' content: atomics, since others read them at any time, and no mutexes, since a holder may
// die. All processes with the same magic have the same layout.
//
// A forked child has no row and no lock: otherwise the kernel would keep the parent's locks for the
// child, too.
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

  /// Makes the file if it does not exist; new rows are 0. `name` is for shm_open, as "/braid-1000".
  /// An error if /dev/shm is full or missing, or if the file is another user's, is open to others,
  /// or has another magic.
  static Result<std::unique_ptr<SharedTable>> open(const std::string& name, uint64_t magic,
                                                   size_t row_bytes);
  ~SharedTable();  ///< gives the row back
  SharedTable(const SharedTable&) = delete;
  SharedTable& operator=(const SharedTable&) = delete;

  /// Takes a free row. `clear` prepares it before others can see its owner. Nothing: all rows are
  /// taken. To be called once only.
  std::optional<size_t> claim(const std::function<void(void* row)>& clear);
  std::optional<size_t> own_row() const { return own_row_; }

  void* row(size_t index) { return rows_ + index * row_bytes_; }
  const void* row(size_t index) const { return rows_ + index * row_bytes_; }
  /// The number of the row's process, which may have died; 0: a free row.
  int32_t pid(size_t index) const { return head_->pids[index].load(std::memory_order_relaxed); }
  /// False: the row's process is of another PID namespace, as in another container. There pid() is
  /// another process here, or none.
  bool is_of_this_namespace(size_t index) const;
  /// Whether the row's process lives. Makes a system call.
  bool is_alive(size_t index) const;

  /// A lock of the whole table, which one process of the host has at a time. The kernel releases it
  /// when its holder dies.
  bool try_lock();
  void unlock();

 private:
  struct Head {
    std::atomic<uint64_t> magic;
    std::array<std::atomic<int32_t>, kRows> pids;         // together: readers look at all of them
    std::array<std::atomic<uint64_t>, kRows> namespaces;  // of the pids; 0: not known
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
