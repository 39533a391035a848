// Where the results of a command go.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace braid::tools {

/// Writes `text` to the file at `path`. A regular file is replaced at once, so that whoever reads
/// it sees the old text or the new one; a link stays one. What is no regular file (/dev/stdout, a
/// pipe), and a file whose folder takes no new one, are written to.
Status write_file(const std::string& path, std::string_view text);

}  // namespace braid::tools
