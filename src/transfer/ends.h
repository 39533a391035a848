// Where requests lead from and to, as far as their ways depend on it, and how they may travel.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "transfer/policy/routes.h"
#include "transfer/policy/tiers.h"
#include "transfer/types.h"

namespace braid::transfer {

struct Endpoint {
  Place place = {};
  uint64_t rails = ~uint64_t{0};  ///< bits: those that reach it
  bool is_file = false;
  bool is_known = true;    ///< false: its owner may have registered it since
  bool is_mapped = false;  ///< memory of a peer's that is mapped here
  auto operator<=>(const Endpoint&) const = default;
};

/// Who reads or writes where.
struct Ends {
  Operation operation = Operation::kRead;
  Endpoint here = {}, there = {};
  auto operator<=>(const Ends&) const = default;
  const Endpoint& source() const { return operation == Operation::kRead ? there : here; }
  const Endpoint& target() const { return operation == Operation::kRead ? here : there; }
};

/// A route over at most three hops, of which one is a provider's.
struct Transport {
  std::string provider;
  std::vector<Hop> hops;
  uint8_t rank = 0;  ///< the soonest are 0; those that are alike have one
};

}  // namespace braid::transfer
