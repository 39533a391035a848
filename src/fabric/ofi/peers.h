// The peers of a domain on libfabric, by number.
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstdint>
#include <map>
#include <vector>

#include "fabric/ofi/doorbell.h"
#include "fabric/ofi/guard.h"
#include "fabric/ofi/link.h"
#include "fabric/ofi/station.h"

namespace braid::fabric::ofi {

struct Peer {
  fi_addr_t address = FI_ADDR_UNSPEC;
  fid_ep* endpoint = nullptr;  // the endpoint that writes to it
  Owned<fid_ep> own;           // owns `endpoint`, if the peer needs one of its own
  uint64_t under_way = 0;
  bool is_broken = false;        // see Quirks::keeps_broken_connections
  bool is_disconnected = false;  // its number is free once nothing is under way
  PeerDoorbell doorbell;         // if the provider has doorbells
  Link link;                     // if it has connections that can be broken
  Guarded guarded;               // until its number is free: libfabric may connect to it anew
  std::vector<std::byte> own_name;

  bool owes_answers() const { return endpoint != nullptr && under_way > 0; }
};

class Peers {
 public:
  /// Returns its number.
  uint32_t add(Peer peer);
  Peer& at(uint32_t number) { return peers_.at(number); }
  void disconnect(uint32_t number);
  void begun(uint32_t number) { ++peers_[number].under_way; }
  void ended(uint32_t number);
  /// The number of peers that have a number.
  size_t count() const { return peers_.size() - free_.size(); }
  void clear();

  bool is_answer_awaited() const;
  /// `Link::give_up` of that peer's link.
  std::vector<File> give_up_link(uint32_t number, Connections& connections);
  /// A peer at that address has a link that has not been given up.
  bool has_link_to(const std::vector<std::byte>& address) const {
    return live_links_.contains(address);
  }
  /// Rings the peers that owe answers, unless that was done a moment ago.
  void ring_again(uint64_t now_ns);

 private:
  void forget_live_link(const Link& link);
  void free_number(uint32_t number);

  std::vector<Peer> peers_;
  std::map<std::vector<std::byte>, size_t> live_links_;  // by address
  std::vector<uint32_t> free_;
  uint64_t ring_again_ns_ = 0;
};

}  // namespace braid::fabric::ofi
