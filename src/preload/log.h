// BRAID_LOG: one line for each copy over the threshold, saying what became of it and why.
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

/// Appends the line to `where`: "stderr", or a path as ProcessPath takes it. The file is opened for
/// each line: a program may close every descriptor that it does not know, and open others.
/// False when it cannot be opened.
bool append_log_line(std::string_view where, int64_t pid, const CopyRecord& record) noexcept;

/// What BRAID_LOG names as `append_log_line` takes it: absolute, since the program may change its
/// folder. Creates the file; fails where it cannot be written.
Result<std::string> find_log(const std::string& where, int64_t pid);

}  // namespace braid::preload
