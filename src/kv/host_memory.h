// What the host can still give: what its kernel says is available, and what the limits of this
// process's control groups leave of it (v1 and v2; a container has such limits).
#pragma once

#include <cstdint>
#include <filesystem>

namespace braid::kv {

/// Without swapping. `root` is the folder that has `proc` and `sys`. A file that is missing, or has
/// no number, limits nothing.
uint64_t host_memory_left_bytes(const std::filesystem::path& root = "/");

}  // namespace braid::kv
