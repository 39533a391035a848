// How endpoints of "verbs" find each other, as librdmacm does it.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>

namespace braid::fabric::fake {

int open_connected_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context);
int open_passive_endpoint(fid_fabric* fabric, fi_info* info, fid_pep** endpoint, void* context);
fi_ops_cm* connection_calls();
/// Of all endpoints of this process at the address. Returns how many.
int break_connections_at(const char* address);

}  // namespace braid::fabric::fake
