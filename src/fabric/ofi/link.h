// The use of connections to an address. libfabric makes one for all peers of a domain that have the
// same address, and has no name for it: it is known by that address alone, as are those of other
// domains of this process.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "fabric/domain.h"

namespace braid::fabric::ofi {

/// One peer's. From any thread, each by one at a time.
class Link {
 public:
  Link() = default;
  /// `name` is a socket address, as fi_getname gives it.
  explicit Link(Bytes name);
  ~Link() { leave(); }
  Link(Link&& other) noexcept { *this = std::move(other); }
  Link& operator=(Link&& other) noexcept;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// What is under way over it is to fail: breaks this process's connections to the address. While
  /// others use them that waits until they have given them up too, or left.
  void give_up();

 private:
  void leave();

  std::vector<std::byte> name_;  // empty: of none
  bool is_given_up_ = false;
};

}  // namespace braid::fabric::ofi
