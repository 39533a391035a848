// This process among the host's processes that use braid (multipath/process_table.h): it tells them
// of its copies, and learns of theirs. GPUs are known by their UUIDs. On the emulated server links
// are not reported, since each process has a virtual time of its own.
//
// Threads: any; copies read and write atomics only.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/options.h"
#include "cuda/driver.h"
#include "multipath/process_table.h"
#include "multipath/relay_topology.h"
#include "multipath/transfer.h"

namespace braid::multipath {

class PeerProcesses {
 public:
  /// Takes a row in the table that the options name. Without a table, no other process sees this
  /// one.
  PeerProcesses(const cuda::Driver& driver, const Options& options, const RelayTopology& relays);

  ProcessRow& row() { return *row_; }
  /// True if a user has switched braid off in this process.
  bool is_off() const { return row_->is_off.load(std::memory_order_relaxed) != 0; }
  /// Why other processes are not known; empty if they are known or not wanted.
  const std::string& problem() const { return problem_; }

  /// Tells the others that `gpu` copies `size_bytes` for itself, until `until_ns`.
  void tell(int gpu, Direction direction, uint64_t size_bytes, uint64_t until_ns);
  /// Calls visit(gpu, size_bytes) for each GPU that copies for itself now in another process.
  template <typename Visit>
  void for_each_busy(Direction direction, uint64_t now_ns, const Visit& visit);

  /// While it lives, no other process that uses braid opens a relay.
  class OpeningLock {
   public:
    explicit OpeningLock(ProcessTable* taken) : table_(taken) {}
    ~OpeningLock();
    OpeningLock(const OpeningLock&) = delete;
    OpeningLock& operator=(const OpeningLock&) = delete;

   private:
    ProcessTable* table_;  // null: it is not locked
  };
  /// Waits a limited time for the current holders. One thread at a time.
  OpeningLock lock_opening();

 private:
  int gpu_of(uint64_t key) const;

  std::unique_ptr<ProcessTable> table_;
  std::unique_ptr<ProcessRow> private_row_;
  ProcessRow* row_ = nullptr;
  std::string problem_;
  bool locks_opening_ = true;
  std::array<uint64_t, ProcessRow::kGpus> keys_{};  // by ordinal
};

template <typename Visit>
void PeerProcesses::for_each_busy(Direction direction, uint64_t now_ns, const Visit& visit) {
  if (table_ == nullptr) return;
  for (size_t index = 0; index < ProcessTable::kRows; ++index) {
    if (table_->pid(index) == 0 || &table_->row(index) == row_) continue;
    for (const GpuRow& other : table_->row(index).gpus) {
      const uint64_t key = other.key.load(std::memory_order_relaxed);
      if (key == 0) break;
      const LinkRow& link = other.links[static_cast<size_t>(direction)];
      if (now_ns >= link.until_ns.load(std::memory_order_relaxed)) continue;
      if (const int gpu = gpu_of(key); gpu >= 0)
        visit(gpu, link.size_bytes.load(std::memory_order_relaxed));
    }
  }
}

}  // namespace braid::multipath
