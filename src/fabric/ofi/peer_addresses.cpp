#include "fabric/ofi/peer_addresses.h"

#include <rdma/fi_errno.h>

namespace braid::fabric::ofi {

Result<fi_addr_t> PeerAddresses::add(const Provider& provider, const Station& station,
                                     Bytes address) {
  const auto [known, is_new] =
      places_.try_emplace({address.begin(), address.end()}, FI_ADDR_UNSPEC);
  if (is_new) {
    const int count =
        fi_av_insert(station.addresses.get(), address.data(), 1, &known->second, 0, nullptr);
    if (count != 1) {
      places_.erase(known);
      return provider.failure("the peer's address is refused", count < 0 ? count : -FI_EINVAL);
    }
  }
  ++users_[known->second];
  return known->second;
}

void PeerAddresses::remove(const Station& station, fi_addr_t place) {
  const auto users = users_.find(place);
  if (--users->second > 0) return;
  users_.erase(users);
  std::erase_if(places_, [&](const auto& known) { return known.second == place; });
  fi_av_remove(station.addresses.get(), &place, 1, 0);
}

}  // namespace braid::fabric::ofi
