// The transports between the two ends of a request: the one place that knows which hops there are
// (copies of GPUs, files, mapped memory, the providers of rails), and by a search over them
// (policy/routes.h) which chains of hops lead from the one end to the other. The engine makes ways
// of them: a backend carries a chain's main hop, and where the chain has a copy at a GPU of this
// side that the backend does not make, chunks go through host memory (backends/through_host.h).
// Chains with the same backend are one transport, since it is the backend that spreads the bytes
// over them: braid's copies decide for each copy which relays take part. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "transfer/ends.h"
#include "transfer/policy/routes.h"

namespace braid::transfer {

/// Of a hop, as long as nothing has been measured.
struct HopCost {
  double gbps = 1;
  double latency_us = 0;
};
HopCost assumed_cost(HopKind kind);

/// A PCIe link that a copy between host memory and a GPU of this process uses.
struct CopyPath {
  int gpu = -1;             ///< whose link: that of the GPU itself, or a relay's
  uint64_t size_bytes = 0;  ///< of the copy
  double pcie_gbps = 0;
  double nvlink_gbps = 0;  ///< between the relay and the GPU; 0: it is the GPU's own link
};

/// What leads to the owner of the far end.
struct Links {
  bool is_self = false;                     ///< the owner is this process
  std::map<std::string, double> gbps = {};  ///< of the rails, by their providers
  std::vector<CopyPath> copies = {};        ///< within this process, by braid; empty: unknown
};

/// A chain of at most three hops, which a request may take.
struct Transport {
  HopKind carrier = HopKind::kRail;      ///< whose backend carries it: the kind of its main hop
  std::string provider;                  ///< of a rail
  bool is_through_host = false;          ///< chunks go through host memory of this side
  std::vector<Hop> hops;                 ///< from the source to the target
  std::vector<std::vector<Hop>> beside;  ///< other chains that the backend spreads each copy over
  uint8_t rank = 0;                      ///< 0: the soonest; alike transports have the same rank
};

/// Mapped memory first, then the soonest first.
std::vector<Transport> transports_between(const Ends& ends, const Links& links);

/// Where a hop begins or ends: "a file", "host memory", "GPU 1".
std::string stop_name(uint32_t stop, const Ends& ends);
/// The relay that a chain leads through; -1: none.
int relay_of(const std::vector<Hop>& chain);

}  // namespace braid::transfer
