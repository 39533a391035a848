// The provider "verbs": endpoints that are connected (FI_EP_MSG), on which libfabric's rxm builds.
//
// Its attributes are those of prov/verbs/src/verbs_info.c of libfabric 1.17, with the limits of a
// ConnectX: 32-bit immediates and keys, one target in a write, four parts of a source.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "fabric/fake_provider/calls.h"
#include "fabric/fake_provider/domain.h"
#include "fabric/fake_provider/info.h"
#include "fabric/fake_provider/verbs_connections.h"

namespace braid::fabric::fake {
namespace {

// Of two providers with one name, libfabric takes the newer.
constexpr uint32_t kVersion = FI_VERSION(9999, 0);
constexpr uint64_t kCaps = FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE |
                           FI_REMOTE_READ | FI_REMOTE_WRITE | FI_LOCAL_COMM | FI_REMOTE_COMM;
constexpr uint64_t kOrder = FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_RAS | FI_ORDER_WAW |
                            FI_ORDER_WAS | FI_ORDER_SAW | FI_ORDER_SAS;
constexpr size_t kQueueSize = 384;  // FI_VERBS_TX_SIZE

Info offer() {
  Info info(fi_allocinfo());
  info->caps = kCaps;
  info->mode = FI_RX_CQ_DATA;
  info->addr_format = FI_SOCKADDR_IN;
  info->fabric_attr->name = strdup("IB-0xfe80000000000000");
  info->fabric_attr->prov_version = kVersion;
  fi_domain_attr& domain = *info->domain_attr;
  domain.name = strdup("fake_mlx5_0");
  domain.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
  domain.threading = FI_THREAD_SAFE;
  domain.control_progress = domain.data_progress = FI_PROGRESS_AUTO;
  domain.resource_mgmt = FI_RM_ENABLED;
  domain.mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  domain.mr_key_size = domain.cq_data_size = sizeof(uint32_t);
  domain.cq_cnt = domain.ep_cnt = domain.mr_cnt = 1 << 16;
  domain.tx_ctx_cnt = domain.rx_ctx_cnt = 1024;
  domain.max_ep_tx_ctx = domain.max_ep_rx_ctx = domain.mr_iov_limit = 1;
  fi_ep_attr& endpoint = *info->ep_attr;
  endpoint.type = FI_EP_MSG;
  endpoint.protocol = FI_PROTO_RDMA_CM_IB_RC;
  endpoint.protocol_version = 1;
  endpoint.max_msg_size = endpoint.max_order_raw_size = endpoint.max_order_waw_size = 1 << 30;
  endpoint.tx_ctx_cnt = endpoint.rx_ctx_cnt = 1;
  fi_tx_attr& sends = *info->tx_attr;
  sends.caps = FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE;
  sends.op_flags = FI_INJECT | FI_INJECT_COMPLETE | FI_COMPLETION | FI_TRANSMIT_COMPLETE;
  sends.msg_order = kOrder;
  sends.inject_size = 64;
  sends.size = kQueueSize;
  sends.iov_limit = 4;
  sends.rma_iov_limit = 1;
  fi_rx_attr& receives = *info->rx_attr;
  receives.caps = FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE;
  receives.mode = FI_RX_CQ_DATA;
  receives.op_flags = FI_COMPLETION;
  receives.msg_order = kOrder;
  receives.size = kQueueSize;
  receives.iov_limit = 4;
  return info;
}

/// Whether this host has the address: rdma_getaddrinfo finds a device by it.
bool is_here(const sockaddr_in& address) {
  const int socket_here = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in place = address;
  place.sin_port = 0;
  const int answer = bind(socket_here, reinterpret_cast<const sockaddr*>(&place), sizeof place);
  close(socket_here);
  return answer == 0;
}

int get_info(uint32_t, const char* node, const char*, uint64_t flags, const fi_info* hints,
             fi_info** found) {
  Info info = offer();
  if (!fits(*info, hints)) return -FI_ENODATA;
  take_sizes(*info, hints);
  sockaddr_in source{};
  source.sin_family = AF_INET;
  if (node != nullptr) {
    if ((flags & FI_SOURCE) == 0 || inet_pton(AF_INET, node, &source.sin_addr) != 1)
      return -FI_ENODATA;
  } else if (hints != nullptr && hints->src_addr != nullptr) {
    std::memcpy(&source, hints->src_addr, std::min(hints->src_addrlen, sizeof source));
  }
  if (!is_here(source)) return -FI_ENODATA;
  info->src_addr = copy_of(&source, sizeof source);
  info->src_addrlen = sizeof source;
  *found = info.release();
  return 0;
}

fi_provider provider = {
    kVersion, FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), {}, "verbs", get_info, open_fabric,
    nullptr};

}  // namespace

const Special& special() {
  static const Special verbs = {
      .manners = {.has_connections = true,
                  .makes_progress_alone = true,
                  .orders_messages = true,
                  .immediates_take_receives = true,
                  .caches_regions = true},
      .open_addresses = nullptr,
      .open_endpoint = open_connected_endpoint,
      .place_of = [](const Endpoint& endpoint, fi_addr_t) { return endpoint.peer; },
      .open_passive = open_passive_endpoint,
      .connection_calls = connection_calls(),
  };
  return verbs;
}

}  // namespace braid::fabric::fake

/// For tests (use.h).
extern "C" __attribute__((visibility("default"))) int braid_fake_break(const char* address) {
  return braid::fabric::fake::break_connections_at(address);
}

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  return &braid::fabric::fake::provider;
}
