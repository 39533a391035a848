// Finding what an address given to a copy or memset is.
#pragma once

#include "emulator/api/entry.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {

enum class EndKind {
  kKnown,  ///< memory that CUDA knows: device memory, or pinned through UVA
  kHost,   ///< pinned or pageable host memory
  kAny,
};

/// CUDA_ERROR_INVALID_VALUE when the range is not memory of that kind, or leaves its allocation.
CUresult find_end(Call& call, uint64_t address, uint64_t size_bytes, EndKind kind, CopyEnd& end);

}  // namespace braid::emulator
