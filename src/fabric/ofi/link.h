// Counts the users of the connections to an address. libfabric makes one connection for all peers
// of a domain that have the same address, and does not expose it. So only the address identifies
// it, together with the connections of this process's other domains to the same address.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "fabric/domain.h"
#include "fabric/ofi/connections.h"
#include "host/file.h"

namespace braid::fabric::ofi {

/// The link of one peer. Links may be used from any thread, each by one thread at a time.
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

  /// Makes the postings under way over the link fail, by breaking this process's connections to the
  /// address. While other links use the connections, this waits until they have given up too, or
  /// left. Returns the established connections that were broken now.
  std::vector<File> give_up(Connections& connections);
  const std::vector<std::byte>& name() const { return name_; }
  /// It leads somewhere, and has not been given up.
  bool is_live() const { return !name_.empty() && !is_given_up_; }

 private:
  void leave();

  std::vector<std::byte> name_;  // empty: no link
  bool is_given_up_ = false;
};

}  // namespace braid::fabric::ofi
