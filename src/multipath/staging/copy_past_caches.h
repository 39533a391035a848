// Copies memory that this CPU will not read again soon.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid::multipath::staging {

/// memcpy with stores that bypass the caches: these need not read the destination first, and do not
/// evict the program's data. glibc uses such stores only far above the size of one block. The
/// stores are visible to threads that synchronise with this one afterwards. Plain memcpy on CPUs
/// other than x86-64.
void copy_past_caches(uint8_t* to, const uint8_t* from, size_t size_bytes);

}  // namespace braid::multipath::staging
