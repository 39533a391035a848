// The peers of a domain on libfabric, by number.
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstdint>
#include <vector>

#include "fabric/ofi/doorbell.h"
#include "fabric/ofi/link.h"
#include "fabric/ofi/station.h"

namespace braid::fabric::ofi {

struct Peer {
  fi_addr_t address = FI_ADDR_UNSPEC;
  fid_ep* endpoint = nullptr;  // from which it is written to
  Owned<fid_ep> own;           // the same, where the peer needs one of its own
  uint64_t under_way = 0;
  bool is_broken = false;        // see Quirks::keeps_broken_connections
  bool is_disconnected = false;  // its number is free once nothing is under way
  PeerDoorbell doorbell;         // where the provider's have some
  Link link;                     // where it has connections that can be broken
  std::vector<std::byte> own_name;

  bool owes_answers() const { return endpoint != nullptr && under_way > 0; }
};

class Peers {
 public:
  /// Its number.
  uint32_t add(Peer peer);
  Peer& at(uint32_t number) { return peers_.at(number); }
  void disconnect(uint32_t number);
  void begun(uint32_t number) { ++peers_[number].under_way; }
  void ended(uint32_t number);
  /// Those that have a number.
  size_t count() const { return peers_.size() - free_.size(); }
  void clear();

  bool is_answer_awaited() const;
  /// Of those that have not answered, if they were not rung a moment ago.
  void ring_again(uint64_t now_ns);

 private:
  std::vector<Peer> peers_;
  std::vector<uint32_t> free_;
  uint64_t ring_again_ns_ = 0;
};

}  // namespace braid::fabric::ofi
