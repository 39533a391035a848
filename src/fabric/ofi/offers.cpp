#include "fabric/ofi/offers.h"

#include <arpa/inet.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstring>
#include <string_view>

#include "fabric/ofi/shm_room.h"

namespace braid::fabric::ofi {
namespace {

constexpr uint32_t kInterface = FI_VERSION(1, 9);

/// What braid asks for, and which of the application's duties it accepts.
Info hints_for(const Library& fabric_library, const Quirks& quirks) {
  Info hints(fabric_library.dupinfo(nullptr));
  hints->caps = FI_MSG | FI_RMA | FI_WRITE | FI_REMOTE_WRITE | FI_SEND | FI_RECV;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  if (quirks.lands_in_order) hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_WAW;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->domain_attr->av_type = FI_AV_TABLE;
  hints->fabric_attr->prov_name = strdup(quirks.provider);  // owner: hints
  return hints;
}

bool is_address(const std::string& text) {
  in6_addr room{};
  return inet_pton(AF_INET, text.c_str(), &room) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &room) == 1;
}

/// Domains are named after devices, with the kind of endpoint behind: "rdmap0s6-rdm".
bool is_of_device(std::string_view domain, const std::string& device) {
  return domain == device || domain.starts_with(device + "-");
}

Result<Info> offer_of_device(Info offers, const Quirks& quirks, const std::string& device) {
  std::string others;
  for (const fi_info* offer = offers.get(); offer != nullptr; offer = offer->next) {
    const std::string domain = offer->domain_attr->name;
    if (is_of_device(domain, device)) return Info(library().value()->dupinfo(offer));
    others += (others.empty() ? "" : ", ") + domain;
  }
  return Status::error(std::string(quirks.provider) + ": there is no device '" + device + "'",
                       "Here are " + others);
}

/// Of shm that finds no room, libfabric says no more than of any other provider that is not there.
Status not_offered(const Quirks& quirks, const std::string& answer) {
  const Status room = check(shm_room());
  if (!quirks.reaches_hosts && !room.ok()) return Status::error("/dev/shm: " + room.message());
  return Status::error(std::string(quirks.provider) + ": no such provider or address: " + answer);
}

}  // namespace

Result<Info> find_offer(const Quirks& quirks, const std::string& address) {
  const Result<const Library*> loaded = library();
  if (!loaded.ok()) return loaded.status();
  const Info hints = hints_for(*loaded.value(), quirks);
  const char* node = quirks.listens_at_address ? address.c_str() : nullptr;
  fi_info* found = nullptr;
  const int answer = loaded.value()->getinfo(kInterface, node, nullptr,
                                             node != nullptr ? FI_SOURCE : 0, hints.get(), &found);
  if (answer != 0) return not_offered(quirks, loaded.value()->describe(answer));
  Info offers(found);
  if (!quirks.takes_device || is_address(address)) return offers;
  return offer_of_device(std::move(offers), quirks, address);
}

}  // namespace braid::fabric::ofi
