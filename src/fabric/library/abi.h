// Shared by the files of the C interface (abi_*.cpp).
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "abi/call.h"
#include "braid/fabric_abi.h"
#include "fabric/library/service.h"

struct braid_fabric {
  std::unique_ptr<braid::fabric::Service> service;
  braid::abi::Process process;
};

namespace braid::fabric::abi {

using namespace braid::abi;

inline Bytes bytes_of(const void* first, size_t size_bytes) {
  return {static_cast<const std::byte*>(first), size_bytes};
}

inline std::optional<uint32_t> optional_of(const uint32_t* immediate) {
  return immediate == nullptr ? std::nullopt : std::optional(*immediate);
}

inline RailRange range_of(const braid_fabric_rails* rails) {
  return rails == nullptr ? RailRange{} : RailRange{rails->first, rails->count};
}

/// The code for a refused call: whether this peer is lost, or not known at all.
inline braid_status code_for_peer(Service& service, uint64_t peer,
                                  braid_status otherwise = BRAID_ERROR_ARGUMENT) {
  return service.with([&](Engine& engine) {
    if (engine.is_lost(peer)) return BRAID_ERROR_PEER;
    return engine.peer_state(peer).ok() ? otherwise : BRAID_ERROR_ARGUMENT;
  });
}
/// The same for the owner of this target.
inline braid_status code_for_target(Service& service, uint64_t target) {
  return service.with([&](Engine& engine) { return engine.is_orphan(target); })
             ? BRAID_ERROR_PEER
             : BRAID_ERROR_ARGUMENT;
}

}  // namespace braid::fabric::abi
