// Where the results of a command go.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace braid::tools {

/// Writes `text` to the file at `path`. A regular file is replaced at once, so that whoever reads
/// it sees the old text or the new one; a link stays one. What is no regular file (/dev/stdout, a
/// pipe), and a file whose folder takes no new one, are written to.
Status write_file(const std::string& path, std::string_view text);

/// Makes a folder in one that is there: a mistyped path is not to grow from the root.
Status make_folder(const std::string& path);

/// The error of a file of so many bytes. `error` is the errno; of ENOSPC it says what is full.
Status cannot_write(const std::string& path, int error, uint64_t size_bytes = 0);

}  // namespace braid::tools
