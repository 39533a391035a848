// The two ends of a request, as far as its ways depend on them.
#pragma once

#include <compare>
#include <cstdint>

#include "transfer/policy/tiers.h"
#include "transfer/types.h"

namespace braid::transfer {

struct Endpoint {
  Place place = {};
  uint64_t rails = ~uint64_t{0};  ///< bits: the rails that reach it
  bool is_file = false;
  bool is_known = true;    ///< false: its owner may have registered it since the segment was opened
  bool is_mapped = false;  ///< memory of a peer that is mapped here
  uint64_t folder = 0;     ///< of a file of this process: the number of its folder in Exports
  auto operator<=>(const Endpoint&) const = default;
};

/// The operation and its two ends.
struct Ends {
  Operation operation = Operation::kRead;
  Endpoint here = {}, there = {};
  auto operator<=>(const Ends&) const = default;
  const Endpoint& source() const { return operation == Operation::kRead ? there : here; }
  const Endpoint& target() const { return operation == Operation::kRead ? here : there; }
};

}  // namespace braid::transfer
