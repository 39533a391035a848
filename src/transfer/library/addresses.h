// The addresses of an engine: where it listens, where its rails are, and what its name says.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/library/rail_choice.h"
#include "topology/server.h"
#include "transfer/directory/names.h"

namespace braid::transfer {

/// The place where an engine listens for questions.
class Listener {
 public:
  /// An error: the text is malformed, or this host has no such address.
  static Result<Listener> parse(const std::string& text, const std::vector<topology::Nic>& nics);

  const HostAndPort& at() const { return at_; }
  /// The address of the NIC where it listens. Empty: loopback, or every address.
  const std::string& nic_address() const { return nic_address_; }
  /// The host of the engine's name. Nobody can connect to a wildcard, so the first rail that it
  /// listens at stands for it. An error: there is no such rail.
  Result<std::string> host_in_name(const fabric::RailChoice& rails) const;

 private:
  HostAndPort at_;
  std::string wildcard_;  // "0.0.0.0" or "::"; empty: none
  std::string nic_address_;
  std::vector<topology::Nic> nics_;  // for errors
};

}  // namespace braid::transfer
