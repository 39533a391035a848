// Opens the rails of an engine of the library: one for each provider and address.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/domain.h"
#include "fabric/library/rail_choice.h"
#include "fabric/library/trust.h"
#include "topology/machine.h"
#include "topology/server.h"
#include "transfer/description.h"
#include "transfer/directory/names.h"
#include "transfer/library/options.h"
#include "transfer/places.h"

namespace braid::transfer {

struct OpenedRails {
  fabric::RailChoice choice;
  HostAndPort listen;        ///< where the engine is to listen
  std::string host_in_name;  ///< where peers reach that
  fabric::Trust trust;
  std::vector<std::unique_ptr<fabric::Domain>> domains;
  std::vector<RailDescription> descriptions;  ///< by domain, without fabric's addresses
};

/// The host where the rails are opened.
struct RailHost {
  const topology::Machine& machine;
  const std::vector<topology::Nic>& nics;
  Places& places;
};

Result<OpenedRails> open_rails(const OpenOptions& options, RailHost& host);

}  // namespace braid::transfer
