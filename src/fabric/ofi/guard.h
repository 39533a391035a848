// Keeps other users of this host out of rails over TCP that have no secret (host/same_user.h).
//
// libfabric's tcp;ofi_rxm and net believe whoever connects: the first message of a connection names
// the port that its process listens at, and what is sent to that address from then on goes over
// this connection, in place of an older one even. So it is not enough to look who listens at the
// addresses that peers name. A guard looks at each TCP connection, at both sides, before a byte of
// it is read or written:
// - One that comes in is taken from libfabric's `accept` if its other end is not admitted.
// - One that libfabric has opened is looked at once it stands, where libfabric asks the kernel for
//   its errors (SO_ERROR). It is who listens at the address that counts: the listener has got the
//   connection. A process that took the port after the last look gets a connection, and no byte.
// What remains: a process that takes a port which a peer has given up, gets a connection, and ends
// its listener before the look, while a process of this user takes the port again in between.
//
// Source: rxm_process_connreq (prov/rxm/src/rxm_conn.c), tcpx_accept and tcpx_cm_send_req
// (prov/tcp/src/tcpx_conn_mgr.c), xnet_process_connreq (prov/net/src/xnet_rdm_cm.c) of libfabric
// 1.17.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "fabric/domain.h"
#include "host/same_user.h"
#include "host/tcp_owner.h"

namespace braid::fabric::ofi {

/// Makes libfabric, a handle of dlopen, use these functions. Once, before its first endpoint.
Status guard_connections(void* libfabric);

/// The guard of one domain. Any thread: libfabric's own ask it too.
class Guard {
 public:
  explicit Guard(Admits admits) : admits_(admits) {}

  Admits admits() const { return admits_; }
  /// An error if the one who listens at this socket address now is not admitted. If nobody does,
  /// there is none: what is posted there fails.
  Status check(Bytes address) const;
  /// Connections that were refused, except those that had ended already.
  uint64_t refused() const { return refused_; }

  // For the functions that libfabric calls.

  bool takes(int connection);
  bool keeps(const TcpEnd& listener);

 private:
  bool judge(Whose whose);

  const Admits admits_;
  std::atomic<uint64_t> refused_ = 0;
};
using SharedGuard = std::shared_ptr<Guard>;

/// While it lives, its guard looks at what is connected there.
class Guarded {
 public:
  enum class Where : uint8_t { kListener, kPeer };

  Guarded() = default;
  /// A peer that libfabric may connect to, by its socket address.
  static Guarded peer(Bytes address, const SharedGuard& guard);
  ~Guarded() { leave(); }
  Guarded(Guarded&& other) noexcept { *this = std::move(other); }
  Guarded& operator=(Guarded&& other) noexcept;
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

 private:
  friend class Listening;
  Guarded(Where where, const TcpEnd& end) : where_(where), end_(end) {}
  void leave();

  Where where_ = Where::kListener;
  std::optional<TcpEnd> end_;  // none: nothing is guarded
};

/// While it lives, this thread lets one endpoint of libfabric's begin to listen.
class Listening {
 public:
  explicit Listening(const SharedGuard& guard);
  ~Listening();
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

  /// Where it listens now.
  Guarded take() { return std::move(guarded_); }

  // For the functions that libfabric calls.

  void begun(const TcpEnd& at);

 private:
  const SharedGuard& guard_;
  Guarded guarded_;
};

}  // namespace braid::fabric::ofi
