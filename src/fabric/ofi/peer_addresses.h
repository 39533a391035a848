// The addresses of peers in libfabric's table of them (an address vector). libfabric's shm has one
// place for an address, however often it is added, and forgets it when it is first removed: a
// posting to another peer with that address would then end the process. So an address that several
// peers have is added once, and removed with the last of them. Addresses whose files are gone share
// a place too, which is removed with the last of all their peers.
#pragma once

#include <rdma/fi_domain.h>

#include <cstddef>
#include <map>
#include <unordered_map>
#include <vector>

#include "fabric/domain.h"
#include "fabric/ofi/station.h"

namespace braid::fabric::ofi {

class PeerAddresses {
 public:
  /// Its place in the station's table.
  Result<fi_addr_t> add(const Provider& provider, const Station& station, Bytes address);
  void remove(const Station& station, fi_addr_t place);

 private:
  std::map<std::vector<std::byte>, fi_addr_t> places_;  // by address
  std::unordered_map<fi_addr_t, size_t> users_;         // by place
};

}  // namespace braid::fabric::ofi
