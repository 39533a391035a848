#include "fabric/ofi/peer_addresses.h"

#include <rdma/fi_errno.h>

namespace braid::fabric::ofi {

Result<fi_addr_t> PeerAddresses::add(const Provider& provider, const Station& station,
                                     Bytes address) {
  const auto [found, is_new] = places_.try_emplace({address.begin(), address.end()});
  Place& known = found->second;
  if (is_new) {
    const int count =
        fi_av_insert(station.addresses.get(), address.data(), 1, &known.place, 0, nullptr);
    if (count != 1) {
      places_.erase(found);
      return provider.failure("the peer's address is refused", count < 0 ? count : -FI_EINVAL);
    }
    by_place_[known.place] = found;
  }
  ++known.users;
  return known.place;
}

void PeerAddresses::remove(const Station& station, fi_addr_t place) {
  const auto found = by_place_.find(place);
  if (--found->second->second.users > 0) return;
  places_.erase(found->second);
  by_place_.erase(found);
  fi_av_remove(station.addresses.get(), &place, 1, 0);
}

}  // namespace braid::fabric::ofi
