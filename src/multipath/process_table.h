// The processes of a host that use braid, in a table of shared memory that belongs to one user
// (host/shared_table.h): /dev/shm/braid-<uid>. A row tells which links have copies of their own,
// whether braid is switched off in the process, and has room for an answer. Only its process writes
// a row, except for the requests of commands.
//
// If the file cannot be used (no /dev/shm, another user's file of that name, no free row), the
// process uses a private row that no other process sees.
//
// Threads: any. A copy reads and writes relaxed atomics only. GPUs are never named by ordinals,
// since processes number them differently.
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

/// A GPU's own copies in one direction, as its process estimates. Times: CLOCK_MONOTONIC.
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
  std::atomic<uint32_t> answers;   ///< the process answers questions
  std::atomic<uint32_t> asked;     ///< written by commands: a count, and a futex
  std::atomic<uint32_t> answered;  ///< the question that `answer` answers
  char name[16];                   ///< of the program; with its final NUL
  GpuRow gpus[kGpus];
  char answer[kAnswerBytes];  ///< text with its final NUL
};

class ProcessTable {
 public:
  static constexpr size_t kRows = SharedTable::kRows;

  /// "/braid-<uid>", for shm_open.
  static std::string usual_name();

  /// Makes the file if it does not exist. An error says why the process cannot use it.
  static Result<std::unique_ptr<ProcessTable>> open(const std::string& name);

  /// Takes a free row for this process, which is given back with the table. Null: all are taken.
  /// Once only.
  ProcessRow* claim(std::string_view program);

  ProcessRow& row(size_t index) { return *static_cast<ProcessRow*>(table_->row(index)); }
  /// The row's process, which may have died; 0: a free row.
  int32_t pid(size_t index) const { return table_->pid(index); }
  /// False: pid() is a number of another PID namespace, as in another container.
  bool is_of_this_namespace(size_t index) const { return table_->is_of_this_namespace(index); }
  /// True if the row's process lives.
  bool is_alive(size_t index) const { return table_->is_alive(index); }

  /// Takes a lock that one process of the host at a time can have. Processes open their relays in
  /// turns: the driver makes the contexts of one process after the other anyway, and all would wait
  /// for all. False: the limit has passed.
  bool lock_opening(std::chrono::milliseconds limit);
  void unlock_opening();

 private:
  explicit ProcessTable(std::unique_ptr<SharedTable> table) : table_(std::move(table)) {}

  std::unique_ptr<SharedTable> table_;
};

/// Asks the process of `row` for its waits, and waits for the answer. Empty if the limit has
/// passed.
std::optional<std::string> ask(ProcessRow& row, std::chrono::milliseconds limit);

// For the owner of a row:

/// Waits until `asked` differs from `seen`, or until the limit (milliseconds::max(): no limit).
void wait_for_question(ProcessRow& row, uint32_t seen, std::chrono::milliseconds limit);
/// Ends such a wait; counts as a question.
void wake(ProcessRow& row);
/// The owner's answer to question number `asked`. A text that is too long is cut.
void answer(ProcessRow& row, uint32_t asked, std::string_view text);

/// The name of this process's program. If the program has cleared its name, as setproctitle does,
/// the name that `ps` shows, in `buffer`. A signal handler may call this.
std::string_view program_name(char (&buffer)[16]) noexcept;

}  // namespace braid::multipath
