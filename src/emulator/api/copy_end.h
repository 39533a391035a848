// Finds the memory that the addresses of a copy or memset name.
#pragma once

#include "emulator/api/entry.h"
#include "emulator/ops/ops.h"

namespace braid::emulator {

enum class EndKind {
  kKnown,  ///< memory that CUDA knows: device memory, or pinned through UVA
  kHost,   ///< pinned or pageable host memory
  kAny,
};

/// The layout of rows in one end's memory, and the first row of the copy, which is at `base + (z *
/// layer_rows + y) * row_bytes + x_bytes` (cuda.h, cuMemcpy3D).
struct Layout {
  uint64_t row_bytes = 0;   ///< the pitch; 0: no gap after x_bytes and the width
  uint64_t layer_rows = 0;  ///< the height of a layer; 0: no gap after y and the height
  uint64_t x_bytes = 0;
  uint64_t y = 0;
  uint64_t z = 0;
};

/// CUDA_ERROR_INVALID_VALUE if the range is not memory of that kind, or leaves its allocation.
/// `size_bytes` is at least 1.
CUresult find_end(Call& call, uint64_t address, uint64_t size_bytes, EndKind kind, CopyEnd& end);

/// The same for rows. Fails also if rows or layers of that layout are too small for the extent,
/// which is not empty.
CUresult find_rows(Call& call, uint64_t base, const Layout& layout, const Extent& extent,
                   EndKind kind, CopyEnd& end);

/// The two contexts that a copy between peers names, alive and without a sticky error: each end is
/// touched through its own. The ends may be looked up before or after.
CUresult find_peers(Call& call, CUcontext destination, CUcontext source, Copy& copy);

}  // namespace braid::emulator
