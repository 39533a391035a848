// BRAID_LOG: one line for each copy over the threshold, with its outcome and the reason.
// docs/statistics.md explains the fields. Allocates nothing.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/text_writer.h"
#include "multipath/transfer.h"
#include "preload/statistics.h"

namespace braid::preload {

struct CopyRecord {
  EntryPoint entry_point;
  uint64_t size_bytes;
  const multipath::Batch* batch;  ///< null: not between host memory and a GPU
  int gpu;                        ///< of the transfer; -1: unknown
  multipath::Outcome outcome;
  uint64_t cost_ns;
};

/// "braid: copy pid=... entry_point=... ...", and a newline.
void write_log_line(int64_t pid, const CopyRecord& record, TextWriter& out);

/// Appends the line to `where`: "stderr", or a path as ProcessPath takes it. Opens the file for
/// each line, since a program may close descriptors that it does not know, and open others. False
/// if it cannot be opened.
bool append_log_line(std::string_view where, int64_t pid, const CopyRecord& record) noexcept;

/// The value of BRAID_LOG for `append_log_line`: an absolute path, since the program may change its
/// folder. Creates the file; fails if it cannot be written.
Result<std::string> find_log(const std::string& where, int64_t pid);

}  // namespace braid::preload
