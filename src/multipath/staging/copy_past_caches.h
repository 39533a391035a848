// Copies memory that this CPU will not read again soon.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid::multipath::staging {

/// memcpy with stores that go past the caches: they need not read the destination first, nor push
/// what the program has there out of its caches. glibc's own such stores begin far above the size
/// of one block. They are visible to whoever synchronises with this thread afterwards. The plain
/// memcpy on CPUs other than x86-64.
void copy_past_caches(uint8_t* to, const uint8_t* from, size_t size_bytes);

}  // namespace braid::multipath::staging
