// How many rails an address over sockets has: as many as a rail of a fabric has endpoints, for the
// same reason (fabric/library/endpoint_count.h). But each rail has descriptors for every peer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "fabric/library/endpoint_count.h"

namespace braid::transfer {

/// A number from 1 to kEndpointsMax; without it as many as a fabric's rail has endpoints, and as
/// the limit of descriptors allows.
inline constexpr const char* kSocketsVariable = "BRAID_TRANSFER_SOCKETS";

/// The number for each address of an engine.
struct Sockets {
  // An engine with hundreds of peers keeps room for the program's own files.
  static constexpr size_t kDescriptorsOfSocket = 8192;

  std::optional<size_t> asked = {};
  fabric::EndpointRoom room = {};
  size_t at(std::optional<double> nic_gbps) const {
    const size_t for_each =
        room.descriptors / kDescriptorsOfSocket / std::max<size_t>(room.addresses, 1);
    const size_t usual = fabric::usual_endpoints(nic_gbps, room);
    return asked.value_or(std::clamp<size_t>(for_each, 1, usual));
  }
};

}  // namespace braid::transfer
