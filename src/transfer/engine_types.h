// What an engine is asked for, and what it reports: requests and their outcomes, ways, counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "transfer/rail.h"
#include "transfer/scheduler.h"
#include "transfer/types.h"

namespace braid::transfer {

struct Request {
  uint64_t segment = 0;
  Operation operation = Operation::kRead;
  void* local = nullptr;
  uint64_t address = 0;  ///< in the segment: of the owner's memory, or the position in the file
  uint64_t size_bytes = 0;
  Urgency urgency = Urgency::kBulk;
  uint64_t deadline_ns = kNever;
};

/// A notification that follows a batch. The owner of `segment` gets it once all bytes of all
/// requests have arrived, and does not get it if a request has failed. The segment may be closed
/// meanwhile.
struct NotificationRequest {
  uint64_t segment = 0;
  std::string name;
  std::vector<std::byte> payload;
};

struct RequestStatus {
  bool has_ended = false;
  Cause cause = Cause::kNone;    ///< kNone: done, once it has ended
  uint64_t delivered_bytes = 0;  ///< once it has ended; not a prefix
};

struct BatchStatus {
  size_t request_count = 0;
  size_t ended_count = 0;
  size_t failed_count = 0;
  bool has_ended() const { return ended_count == request_count; }
};

/// One hop of a way, with the time that all bytes would take on it alone.
struct HopExplanation {
  std::string text;  ///< "GPU 0 to host memory"
  double us = 0;
};
/// One of the paths over which a way spreads each copy: a GPU's own PCIe link, or a relay's and
/// NVLink.
struct LegExplanation {
  std::vector<HopExplanation> hops;  ///< with the time that its part of the request would take
  double gbps = 0;                   ///< of its slowest hop
  double part = 0;                   ///< of the bytes
};
/// One way to a segment, as the engine sees it now.
struct WayExplanation {
  std::string text;  ///< "tcp;ofi_rxm 10.0.0.8 to 10.0.0.7"
  WayExplained way;
  std::vector<HopExplanation> hops;  ///< from the source to the target
  double finish_us = 0;  ///< when the request would end on this way alone, from an idle start
  std::vector<LegExplanation> legs = {};  ///< none: it is not spread, or nobody knows
};

/// Memory of this process that a rail could not register: its requests take other rails.
struct RefusedMemory {
  std::string rail;  ///< "tcp;ofi_rxm 10.0.0.7"
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  std::string why;
};

struct PathStatistics {
  Incarnation peer{};
  std::string text;
  PathView view;
};

/// A link of a rail to a peer: what this side moved over it, and what it served to the peer.
struct LinkUse {
  std::string rail;  ///< "tcp;ofi_rxm 10.0.0.7"
  LinkStatistics counts;
};

struct TransferStatistics {
  uint64_t requests_done = 0;
  uint64_t requests_failed = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
  uint64_t slices = 0;
  uint64_t reissued_slices = 0;
  uint64_t fences = 0;
  uint64_t peers_lost = 0;
  uint64_t mappings_refused = 0;  ///< memory handed out on this host, but not mapped
};

}  // namespace braid::transfer
