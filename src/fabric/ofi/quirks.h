// The differences of libfabric's providers that matter to braid. One file for each provider.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace braid::fabric::ofi {

struct Quirks {
  const char* provider;  ///< as libfabric names it
  /// It listens at an address of the host. If false, it chooses its own name.
  bool listens_at_address = false;
  /// Its connections are TCP sockets of this process, which the kernel knows the user of (guard.h).
  bool connects_by_tcp = false;
  /// A rail is named by an RDMA device, not by an address of the host. If an address is given, the
  /// first device is used.
  bool takes_device = false;
  /// Other hosts can reach it, unless it listens at a loopback address.
  bool reaches_hosts = true;
  /// The CPU copies every byte, in the thread that drives the endpoint.
  bool copies_by_cpu = false;
  /// Opening a station takes milliseconds (spare_station.h).
  bool opens_slowly = false;
  /// Writes to one target land in the order of posting, if they are posted over one connection
  /// (FI_ORDER_WAW). So when one of them has landed, those before it have.
  bool lands_in_order = false;
  /// See Traits::answers_writes.
  bool answers_writes = false;
  /// See Traits::removal_fences.
  bool removal_fences = false;
  /// See Traits::closing_fences.
  bool closing_fences = false;
  /// Closing an endpoint while a write comes in makes the process fault (rxm of libfabric 1.17
  /// reports the write's end without a context, and uses that context). So the endpoint's
  /// connections are first shut down, and read to their ends.
  bool drains_before_close = false;
  /// A write that has come to an endpoint never completes if the endpoint is closed before it is
  /// read.
  bool reads_before_close = false;
  /// Completions of one endpoint come in the order of posting, so a silent peer would hold up those
  /// of all others. Therefore each peer is written to from an endpoint of its own.
  bool needs_endpoint_for_each_peer = false;
  /// Its endpoints have locks in memory that processes share (robust_locks.h).
  bool shares_locks = false;
  /// The size of its table of peers; 0: unlimited. Each connection takes two places, one for each
  /// direction. The place of the incoming direction is never freed, and a full table makes the
  /// process hang or fault.
  size_t peers_max = 0;
  /// A broken connection stays broken, and every posting to it fails. An endpoint has one
  /// connection for each peer. So once all postings under way have come back, the peer is written
  /// to from another endpoint.
  bool keeps_broken_connections = false;
  /// It refuses a process's connection while it has an earlier one of that process, whose end it
  /// may not have heard of (knocks.h).
  bool refuses_second_connection = false;
  /// Its queue has a descriptor to wait for (FI_WAIT_FD).
  bool has_wait_descriptor = false;
  /// Its queue has no descriptor, and peers ring at its endpoints instead (doorbell.h).
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
