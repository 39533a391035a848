// Where the memory of a wire between two processes lies (process_wires.cpp).
#pragma once

#include <memory>

#include "fabric/wires.h"

namespace braid::fabric::test {

enum class Place : uint8_t {
  kHost,
  kMapped,  ///< of the host; peers map it
  kPlain,   ///< of a GPU, by cuMemAlloc
  kShared,  ///< of a GPU, mapped, and made to be shared
};
constexpr bool is_on_gpu(Place place) { return place == Place::kPlain || place == Place::kShared; }

/// Of this process; all zero. On a GPU it is of that GPU's primary context, the only one that the
/// process makes: each side has a GPU of its own, if there are two.
std::unique_ptr<Memory> memory_at(Place place, int side, size_t size_bytes);

/// Empty, or why there is no GPU.
std::string why_no_gpu();

}  // namespace braid::fabric::test
