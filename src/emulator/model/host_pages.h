// The program's rights to its own pages. Checked before the driver touches them, so that a wrong
// address is an error and not a crash.
#pragma once

#include <cstdint>

namespace braid::emulator {

/// True when the process may read the range: the ends and a byte of each page between are probed.
bool is_readable(const void* address, uint64_t size_bytes);

/// True when every page of the range is mapped for writing.
bool is_writable(const void* address, uint64_t size_bytes);

}  // namespace braid::emulator
