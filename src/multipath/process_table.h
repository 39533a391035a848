// The processes of a host that use braid, in a table of shared memory that belongs to one user
// (host/shared_table.h): /dev/shm/braid-<uid>. Each process has a row that it alone writes, but for
// what a command asks of it: whose links have copies of its own, whether braid is switched off
// there, and room for an answer.
//
// Where there is no such file (no /dev/shm, another user's file of that name, no free row), a
// process does without: it has a row that nobody else sees.
//
// Threads: any. Everything that a copy reads or writes is relaxed atomics. No GPU is named by its
// ordinal, since processes number them differently.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "host/shared_table.h"

namespace braid::multipath {

/// A GPU's own copies in one direction, as far as its process can tell. Times: CLOCK_MONOTONIC.
struct LinkRow {
  std::atomic<uint64_t> until_ns;
  std::atomic<uint64_t> size_bytes;
};

struct GpuRow {
  std::atomic<uint64_t> key;  ///< of the GPU, the same in every process; 0: an unused row
  LinkRow links[2];           ///< by direction
};

struct ProcessRow {
  static constexpr size_t kGpus = 16;
  static constexpr size_t kAnswerBytes = 3072;

  std::atomic<uint32_t> is_off;    ///< written by commands: copies are native
  std::atomic<uint32_t> answers;   ///< somebody there answers questions
  std::atomic<uint32_t> asked;     ///< written by commands: a count, and a futex
  std::atomic<uint32_t> answered;  ///< the question that `answer` is about
  char name[16];                   ///< of the program; with its final NUL
  GpuRow gpus[kGpus];
  char answer[kAnswerBytes];  ///< text with its final NUL
};

class ProcessTable {
 public:
  static constexpr size_t kRows = SharedTable::kRows;

  /// "/braid-<uid>", for shm_open.
  static std::string usual_name();

  /// Makes the file if it is not there. Says why a process does without.
  static Result<std::unique_ptr<ProcessTable>> open(const std::string& name);

  /// Takes a free row for this process, which is given back with the table. Null: all are taken.
  /// Once only.
  ProcessRow* claim(std::string_view program);

  ProcessRow& row(size_t index) { return *static_cast<ProcessRow*>(table_->row(index)); }
  /// Of the row's process, which may have died; 0: a free row.
  int32_t pid(size_t index) const { return table_->pid(index); }
  /// The row's process lives.
  bool is_alive(size_t index) const { return table_->is_alive(index); }

  /// One process of the host at a time has the lock: relays are opened in turns, since the driver
  /// makes the contexts of one process after the other anyway, and all would wait for all. False:
  /// it was not to be had in time.
  bool lock_opening(std::chrono::milliseconds limit);
  void unlock_opening();

 private:
  explicit ProcessTable(std::unique_ptr<SharedTable> table) : table_(std::move(table)) {}

  std::unique_ptr<SharedTable> table_;
};

/// Asks the process of `row` what it waits for, and waits for the answer. Nothing: it did not
/// answer in time.
std::optional<std::string> ask(ProcessRow& row, std::chrono::milliseconds limit);

// For the owner of a row:

/// Waits until `asked` no longer reads `seen`, or for so long (milliseconds::max(): for ever).
void wait_for_question(ProcessRow& row, uint32_t seen, std::chrono::milliseconds limit);
/// Ends such a wait, and counts as a question.
void wake(ProcessRow& row);
/// The owner's answer to question number `asked`; too long a text is cut.
void answer(ProcessRow& row, uint32_t asked, std::string_view text);

/// What this process's program is called; what `ps` shows when the program has cleared its name, as
/// setproctitle does, which is then in `buffer`. A signal handler may call this.
std::string_view program_name(char (&buffer)[16]) noexcept;

}  // namespace braid::multipath
