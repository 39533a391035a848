// What happens on the links of a rail, and what they have moved.
#pragma once

#include <cstdint>
#include <variant>

#include "fabric/engine.h"
#include "transfer/backend.h"
#include "transfer/rail_messages.h"

namespace braid::transfer {

/// Events for the driver of the rail. After this side has closed a link, the only event about the
/// link is LinkFenced.
struct LinkUp {
  uint64_t link = 0;
  Incarnation who{};
  uint64_t engine = 0;      ///< fabric's number of the other rail
  bool is_dialled = false;  ///< by this side
};
struct LinkLost {
  uint64_t link = 0;
  fabric::PeerFailure why = fabric::PeerFailure::kNone;
  bool is_of_other_version = false;  ///< its hello has no version in common with this side
};
struct LinkFenced {
  uint64_t link = 0;
};
/// A message that is not about slices.
struct LinkMessage {
  uint64_t link = 0;
  RailMessage message;
};
/// An answer to `ping`.
struct LinkAnswers {
  uint64_t link = 0;
  uint64_t token = 0;
};
using RailEvent = std::variant<LinkUp, LinkLost, LinkFenced, LinkAnswers, LinkMessage, PieceEnd>;

struct LinkStatistics {
  Incarnation who{};
  bool is_up = false;
  uint64_t endpoints = 0;   ///< over which this side writes (fabric/endpoints.h); 0: not connected
  uint64_t read_bytes = 0;  ///< by this side, from the peer
  uint64_t written_bytes = 0;  ///< by this side, to the peer
  uint64_t served_bytes = 0;   ///< written by this side for reads of the peer
  uint64_t failures = 0;
};

}  // namespace braid::transfer
