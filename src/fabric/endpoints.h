// Several endpoints at one network interface, which are one domain. Where the CPU copies every
// byte, an endpoint is as fast as the thread that drives it. So a domain of several is faster, if
// each further endpoint has a thread (progress_thread.h).
//
// The first endpoint carries the messages and the small writes: the engine's own thread drives it,
// so they wait for no other thread. A large write goes over the endpoint that has the least to
// carry; the first endpoint is the last choice of those with as little, since who copies takes no
// messages. The addresses of a peer's further endpoints come with those of its doors; a peer
// without any is written to over the first endpoint alone. The contract is that of fabric/domain.h.
// Source: NCCL's NCCL_NSOCKS_PERTHREAD; UCX's lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/domain.h"

namespace braid::fabric {

inline constexpr size_t kEndpointsMax = 16;

struct EndpointOptions {
  /// So many doors are open at all endpoints at once, and so many peers are connected over several.
  /// Each costs descriptors and memory, so further ones have the first endpoint alone.
  size_t doors_max = 64;
  uint64_t small_write_bytes = 8 << 10;  ///< at most
};

/// One to kEndpointsMax endpoints, all of the same provider, on which domains choose the keys of
/// memory.
std::unique_ptr<Domain> join_endpoints(std::vector<std::unique_ptr<Domain>> endpoints,
                                       const EndpointOptions& options);

}  // namespace braid::fabric
