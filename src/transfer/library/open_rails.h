// Opens the rails of an engine of the library: one for each provider and address, and several with
// a thread each where sockets of one address carry more than a thread can copy.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/domain.h"
#include "fabric/library/rail_choice.h"
#include "fabric/seal.h"
#include "topology/server.h"
#include "transfer/description.h"
#include "transfer/library/options.h"
#include "transfer/places.h"

namespace braid::transfer {

/// How many rails an address of sockets gets; empty: rails_at decides.
inline constexpr const char* kSocketsVariable = "BRAID_TRANSFER_SOCKETS";

struct OpenedRails {
  fabric::RailChoice choice;
  fabric::Secret secret;
  size_t sockets = 0;                ///< rails for each address of sockets; 0: rails_at decides
  bool has_several_sockets = false;  ///< some address has several rails
  std::vector<std::unique_ptr<fabric::Domain>> domains;
  std::vector<RailDescription> descriptions;  ///< by domain, without fabric's addresses
};

/// The host where the rails are opened.
struct RailHost {
  const std::vector<topology::Nic>& nics;
  Places& places;
};

/// How many of these rails an address gets: as many as its NIC's speed needs (none: it is not
/// known), and 4 at most. All addresses together get no more than 16, and a quarter of the CPUs.
/// Pure.
size_t rails_at(std::optional<double> gbps, unsigned cpus, size_t addresses);

Result<OpenedRails> open_rails(const OpenOptions& options, RailHost& host);

}  // namespace braid::transfer
