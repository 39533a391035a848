// Plans a scatter: one plan for each member of a group. Pure.
// Source: 3.3 of the paper, submit_scatter.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fabric/policy/plan.h"

namespace braid::fabric {

/// The part of one member: bytes of the common source, and their place in the member's target.
struct Part {
  Slice slice;
  std::optional<uint32_t> immediate;
};

/// One plan for each part. `target_bytes[i]` is the size of the target of part i. All parts are
/// checked before any plan is made; the error names the first wrong part.
Result<std::vector<Plan>> plan_scatter(std::span<const Part> parts, uint64_t source_bytes,
                                       std::span<const uint64_t> target_bytes,
                                       const Slicing& slicing);

}  // namespace braid::fabric
