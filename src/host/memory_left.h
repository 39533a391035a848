// What the host can still give: what its kernel says is available, and what the limits of this
// process's control groups leave of it (v1 and v2; a container has such limits).
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/status.h"

namespace braid {

/// Without swapping. `root` is the folder that has `proc` and `sys`. A file that is missing, or has
/// no number, limits nothing.
uint64_t memory_left_bytes(const std::filesystem::path& root = "/");

/// An error if the host does not have so much left, with swapping. Whoever touches more is not
/// refused: the kernel ends a process, perhaps another one.
Status check_memory_left(uint64_t size_bytes, const std::filesystem::path& root = "/");

}  // namespace braid
