// libfabric's domain: a NIC, and the calls that both providers share.
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <memory>

#include "fabric/fake_provider/endpoint.h"
#include "fabric/fake_provider/nic.h"

namespace braid::fabric::fake {

struct Domain : fid_domain {
  std::unique_ptr<Nic> nic;
};

/// What only one of the providers has. Null: it does not.
struct Special {
  Manners manners;
  int (*open_addresses)(fid_domain*, fi_av_attr*, fid_av**, void*) = nullptr;
  int (*open_endpoint)(fid_domain*, fi_info*, fid_ep**, void*) = nullptr;
  /// Where a posting with this address goes; empty: nowhere.
  std::string (*place_of)(const Endpoint&, fi_addr_t) = nullptr;
  int (*open_passive)(fid_fabric*, fi_info*, fid_pep**, void*) = nullptr;
  fi_ops_cm* connection_calls = nullptr;
};
/// Of the provider that this library is.
const Special& special();

int open_fabric(fi_fabric_attr* attributes, fid_fabric** fabric, void* context);
/// Fills in the calls of an endpoint that was made.
void prepare_endpoint(Endpoint& endpoint, void* context);

}  // namespace braid::fabric::fake
