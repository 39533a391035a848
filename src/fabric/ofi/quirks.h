// How libfabric's providers differ where braid notices. One file for each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace braid::fabric::ofi {

struct Quirks {
  const char* provider;  ///< as libfabric names it
  /// Where it listens: an address of the host. Otherwise it names itself.
  bool listens_at_address = false;
  /// A rail is an RDMA device by its name, not an address of the host. An address there takes the
  /// first device.
  bool takes_device = false;
  /// Other hosts can reach it, unless it listens at a loopback address.
  bool reaches_hosts = true;
  /// See Traits::removal_fences.
  bool removal_fences = false;
  /// See Traits::closing_fences.
  bool closing_fences = false;
  /// An endpoint that is closed while a write comes in makes the process fault (rxm of
  /// libfabric 1.17 reports the write's end without a context, and uses it). So its connections are
  /// shut down first, and read to their ends.
  bool drains_before_close = false;
  /// A write that has come to an endpoint, and is not read before that is closed, never completes.
  bool reads_before_close = false;
  /// Completions of one endpoint come in the order of posting, so a peer that is silent would hold
  /// up those of all others: each peer is written to from an endpoint of its own.
  bool needs_endpoint_for_each_peer = false;
  /// Its endpoints have locks in memory that processes share (robust_locks.h).
  bool shares_locks = false;
  /// Places in its table of peers; 0: as many as there are. Each connection takes two, one for each
  /// way. The one of the way in is not given back, and a full table makes the process hang or
  /// fault.
  size_t peers_max = 0;
  /// A connection that has broken stays so, and whatever is posted to it fails. An endpoint has one
  /// for each peer: once all that was under way has come back, the peer is written to from another.
  bool keeps_broken_connections = false;
  /// Its queue has a descriptor to wait for (FI_WAIT_FD).
  bool has_wait_descriptor = false;
  /// It has none, and peers ring at its endpoints (doorbell.h).
  bool has_doorbells = false;
};

const Quirks& tcp_quirks();
const Quirks& net_quirks();
const Quirks& shm_quirks();
const Quirks& verbs_quirks();
const Quirks& efa_quirks();

std::span<const Quirks* const> all_quirks();
/// Null: braid does not know this provider.
const Quirks* find_quirks(std::string_view provider);

}  // namespace braid::fabric::ofi
