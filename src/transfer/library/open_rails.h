// Opens the rails of an engine of the library: one for each provider and address. Over sockets one
// rail is as fast as one thread can copy, so an address of these has as many as the user asks for.
// The engine's thread serves the first, which so is the soonest for small requests; each of the
// others has a thread of its own.
#pragma once

#include <memory>
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

/// How many rails an address of sockets gets: a number from 1 to 16; without it 1.
inline constexpr const char* kSocketsVariable = "BRAID_TRANSFER_SOCKETS";

struct OpenedRails {
  fabric::RailChoice choice;
  fabric::Secret secret;
  size_t sockets = 1;  ///< rails for each address of sockets
  std::vector<std::unique_ptr<fabric::Domain>> domains;
  std::vector<RailDescription> descriptions;  ///< by domain, without fabric's addresses
};

/// The host where the rails are opened.
struct RailHost {
  const std::vector<topology::Nic>& nics;
  Places& places;
};

Result<OpenedRails> open_rails(const OpenOptions& options, RailHost& host);

}  // namespace braid::transfer
