// The options of an engine, and what it reports of its peers, rails and grants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fabric/policy/heartbeat.h"
#include "fabric/policy/rail_health.h"
#include "fabric/policy/slicing.h"
#include "fabric/processes.h"
#include "fabric/seal.h"
#include "fabric/wire.h"
#include "host/random_number.h"

namespace braid::fabric {

struct EngineOptions {
  /// The engine's identity: 64 random bits that no other engine has or has had.
  uint64_t engine = 0;
  Slicing slicing;
  size_t receives = 64;  ///< buffers for messages
  size_t sends = 16;
  uint32_t credits = 16;  ///< messages that one peer may have on their way to this engine
  size_t peers_max = 1024;
  size_t newcomers_max = 64;  ///< peers that have said hello, and have not answered our Welcome yet
  static constexpr size_t kQueuedMax = 1 << 14;
  /// Messages waiting for one peer, which may ask without reading answers.
  size_t queued_max = kQueuedMax;
  size_t remembered_max = 1 << 16;  ///< ranges of revoked grants that one peer makes it remember
  uint64_t handshake_ns = 5'000'000'000;  ///< the newcomers' time to answer
  uint64_t farewell_ns = 5'000'000'000;   ///< for postings to a disconnected peer to end
  /// The time after a peer's goodbye in which postings that it took before may still end. Its doors
  /// are shut.
  uint64_t shut_ns = 100'000'000;
  bool accepts_peers = true;  ///< accepts engines that it has not connected to itself
  HeartbeatOptions heartbeat;
  Secret secret;  ///< all engines that talk to each other have the same, or none
  std::shared_ptr<Processes> processes;  ///< null: the ends of peers' processes are not noticed
  std::function<uint64_t()> random = random_number;  ///< unpredictable
};

enum class PeerState : uint8_t { kConnecting, kConnected, kFailed };

enum class PeerFailure : uint8_t {
  kNone,
  kNoAnswer,  ///< it has not answered by its deadline
  kNetwork,   ///< what was sent to it has failed, or (over one rail) a message of it was lost
  kSilent,    ///< it has said nothing for HeartbeatOptions::limit_ns, and was given up
  kEnded,     ///< its process, on this host, has ended
  kLeft,      ///< it has disconnected
  kGaveUs,    ///< it has given this engine up: as silent, or since it missed a message
  kReplaced,  ///< it has connected anew
  kTooMuch,   ///< it made this engine remember more than the limit
};

/// The state of granted memory.
enum class Fence : uint8_t {
  kLive,         ///< the peer may write
  kRevoking,     ///< the peer was asked to stop, and may still write
  kFenced,       ///< no write of the peer can land any more
  kQuarantined,  ///< the peer has not answered, and a write that had begun may land; kFenced later,
                 ///< if it answers after all
};

struct Granted {
  uint64_t grant = 0;
  Descriptor descriptor;
};

struct Received {
  uint64_t peer = 0;
  std::vector<std::byte> payload;
  std::vector<std::byte> following;  ///< the bytes that came with it
};

/// Counts of errors that no call reports.
struct EngineStatistics {
  uint64_t malformed = 0;        ///< messages that could not be read
  uint64_t unauthenticated = 0;  ///< messages that were not sealed with the secret
  uint64_t replayed = 0;         ///< messages that had come before
  uint64_t misdirected = 0;      ///< for another engine or connection, or from an unknown sender
  /// Peers beyond the limit, with other rails, or without being asked; connections of other users
  /// of this host, where there is no secret.
  uint64_t refused = 0;
  uint64_t over_credit = 0;  ///< messages of peers that had no credit
  uint64_t peers_failed = 0;
};

}  // namespace braid::fabric
