// The provider "efa": reliable datagrams without order (FI_EP_RDM).
//
// Its attributes are those of prov/efa/src/efa_prov_info.c of libfabric 1.17 (EFA RDM endpoints):
// 32-bit immediates and keys, one target in a write, and FI_MR_LOCAL only where the program takes
// it (efa_user_info.c). Two devices, since a program chooses one by its domain's name.
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>
#include <sys/random.h>

#include <array>
#include <cstring>
#include <map>

#include "fabric/fake_provider/calls.h"
#include "fabric/fake_provider/domain.h"
#include "fabric/fake_provider/info.h"

namespace braid::fabric::fake {
namespace {

// Of two providers with one name, libfabric takes the newer.
constexpr uint32_t kVersion = FI_VERSION(9999, 0);
constexpr uint64_t kCaps = FI_MSG | FI_RMA | FI_SEND | FI_RECV | FI_READ | FI_WRITE |
                           FI_REMOTE_READ | FI_REMOTE_WRITE | FI_LOCAL_COMM | FI_REMOTE_COMM |
                           FI_SOURCE | FI_MULTI_RECV | FI_DIRECTED_RECV;
constexpr uint32_t kDuties = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
constexpr size_t kSendsMax = 512, kReceivesMax = 1024;
constexpr int kDevices = 2;

/// struct efa_ep_addr (prov/efa/src/efa.h).
struct Address {
  std::array<uint8_t, 16> gid{};
  uint16_t queue_pair = 0;
  uint16_t pad = 0;
  uint32_t queue_key = 0;
  uint64_t next = 0;
};
static_assert(sizeof(Address) == 32);

std::string place_of(const Address& address) {
  std::string place = "braid fake efa";
  char text[32];
  std::snprintf(text, sizeof text, " %x %x %x", address.gid[15], address.queue_pair,
                address.queue_key);
  return place + text;
}

Info offer(int device) {
  Info info(fi_allocinfo());
  info->caps = kCaps;
  info->addr_format = FI_ADDR_EFA;
  Address address;
  address.gid[0] = 0xfe;
  address.gid[1] = 0x80;
  address.gid[15] = static_cast<uint8_t>(device + 1);
  info->src_addr = copy_of(&address, sizeof address);
  info->src_addrlen = sizeof address;
  info->fabric_attr->name = strdup("EFA-fe80::1");
  info->fabric_attr->prov_version = kVersion;
  fi_domain_attr& domain = *info->domain_attr;
  domain.name = strdup(("fake_rdmap" + std::to_string(device) + "-rdm").c_str());
  domain.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
  domain.threading = FI_THREAD_SAFE;
  domain.control_progress = domain.data_progress = FI_PROGRESS_AUTO;
  domain.resource_mgmt = FI_RM_ENABLED;
  domain.av_type = FI_AV_UNSPEC;
  domain.mr_mode = kDuties;
  domain.mr_key_size = domain.cq_data_size = sizeof(uint32_t);
  domain.cq_cnt = domain.ep_cnt = domain.mr_cnt = 1 << 12;
  domain.tx_ctx_cnt = domain.rx_ctx_cnt = 1024;
  domain.max_ep_tx_ctx = domain.max_ep_rx_ctx = domain.mr_iov_limit = 1;
  fi_ep_attr& endpoint = *info->ep_attr;
  endpoint.type = FI_EP_RDM;
  endpoint.protocol = FI_PROTO_EFA;
  endpoint.protocol_version = 4;
  endpoint.max_msg_size = SIZE_MAX;
  endpoint.tx_ctx_cnt = endpoint.rx_ctx_cnt = 1;
  fi_tx_attr& sends = *info->tx_attr;
  sends.caps = FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE;
  sends.op_flags = FI_INJECT | FI_COMPLETION | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
  sends.inject_size = 3928;
  sends.size = kSendsMax;
  sends.iov_limit = 4;
  sends.rma_iov_limit = 1;
  fi_rx_attr& receives = *info->rx_attr;
  receives.caps = FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SOURCE |
                  FI_MULTI_RECV | FI_DIRECTED_RECV;
  receives.op_flags = FI_COMPLETION | FI_MULTI_RECV;
  receives.size = kReceivesMax;
  receives.iov_limit = 4;
  return info;
}

/// Names of hosts mean nothing to it: a node is an address of its own format.
int get_info(uint32_t, const char* node, const char*, uint64_t, const fi_info* hints,
             fi_info** found) {
  *found = nullptr;
  if (node != nullptr) return -FI_ENODATA;
  for (int device = kDevices - 1; device >= 0; --device) {
    Info info = offer(device);
    if (!fits(*info, hints)) continue;
    take_sizes(*info, hints);
    if (hints != nullptr && hints->domain_attr != nullptr)
      info->domain_attr->mr_mode |= hints->domain_attr->mr_mode & FI_MR_LOCAL;
    info->next = *found;
    *found = info.release();
  }
  return *found != nullptr ? 0 : -FI_ENODATA;
}

// ---- Address vectors ----

struct Addresses : fid_av {
  std::mutex mutex;
  std::map<fi_addr_t, Address> known;
  fi_addr_t next = 0;
};

int insert_addresses(fid_av* handle, const void* bytes, size_t count, fi_addr_t* numbers, uint64_t,
                     void*) {
  auto& addresses = *static_cast<Addresses*>(handle);
  const std::lock_guard lock(addresses.mutex);
  for (size_t i = 0; i < count; ++i) {
    Address& address = addresses.known[addresses.next];
    std::memcpy(&address, static_cast<const Address*>(bytes) + i, sizeof address);
    if (numbers != nullptr) numbers[i] = addresses.next;
    ++addresses.next;
  }
  return static_cast<int>(count);
}

int remove_addresses(fid_av* handle, fi_addr_t* numbers, size_t count, uint64_t) {
  auto& addresses = *static_cast<Addresses*>(handle);
  const std::lock_guard lock(addresses.mutex);
  for (size_t i = 0; i < count; ++i) addresses.known.erase(numbers[i]);
  return 0;
}

int look_up_address(fid_av* handle, fi_addr_t number, void* address, size_t* size_bytes) {
  auto& addresses = *static_cast<Addresses*>(handle);
  const std::lock_guard lock(addresses.mutex);
  const auto found = addresses.known.find(number);
  if (found == addresses.known.end()) return -FI_EINVAL;
  std::memcpy(address, &found->second, std::min(*size_bytes, sizeof(Address)));
  *size_bytes = sizeof(Address);
  return 0;
}

int close_addresses(fid* handle) {
  delete &object_of<Addresses, fid_av>(handle);  // owner: this vector
  return 0;
}

fi_ops addresses_fid = {sizeof(fi_ops), close_addresses, unsupported, unsupported,
                        unsupported,    nullptr,         nullptr};
fi_ops_av addresses_calls = {sizeof(fi_ops_av), insert_addresses, unsupported, unsupported,
                             remove_addresses,  look_up_address,  nullptr,     nullptr};

int open_addresses(fid_domain*, fi_av_attr*, fid_av** opened, void* context) {
  auto* addresses = new Addresses();  // owner: who closes it
  addresses->fid = {FI_CLASS_AV, context, &addresses_fid};
  addresses->ops = &addresses_calls;
  *opened = addresses;
  return 0;
}

std::string place_of_peer(const Endpoint& endpoint, fi_addr_t number) {
  auto& addresses = *static_cast<Addresses*>(endpoint.addresses);
  const std::lock_guard lock(addresses.mutex);
  const auto found = addresses.known.find(number);
  return found == addresses.known.end() ? "" : place_of(found->second);
}

// ---- Endpoints ----

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** opened, void* context) {
  Nic& nic = *static_cast<Domain*>(domain)->nic;
  const std::lock_guard lock(nic.mutex);
  auto* endpoint = new Endpoint(nic, *info);  // owner: who closes it
  Address address;
  std::memcpy(&address, info->src_addr, sizeof address);
  do {
    if (getrandom(&address.queue_pair, sizeof address.queue_pair, 0) < 0) continue;
    if (getrandom(&address.queue_key, sizeof address.queue_key, 0) < 0) continue;
  } while (!endpoint->port.open(place_of(address)));
  const auto* first = reinterpret_cast<const std::byte*>(&address);
  endpoint->name.assign(first, first + sizeof address);
  prepare_endpoint(*endpoint, context);
  *opened = endpoint;
  return 0;
}

int name_of_endpoint(fid* handle, void* address, size_t* size_bytes) {
  const auto& endpoint = object_of<Endpoint, fid_ep>(handle);
  std::memcpy(address, endpoint.name.data(), std::min(*size_bytes, endpoint.name.size()));
  const bool is_whole = *size_bytes >= endpoint.name.size();
  *size_bytes = endpoint.name.size();
  return is_whole ? 0 : -FI_ETOOSMALL;
}

fi_ops_cm name_calls = {sizeof(fi_ops_cm), unsupported, name_of_endpoint, unsupported, unsupported,
                        unsupported,       unsupported, unsupported,      unsupported, unsupported};

fi_provider provider = {
    kVersion, FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), {}, "efa", get_info, open_fabric,
    nullptr};

}  // namespace

const Special& special() {
  static const Special efa = {
      .manners = {},
      .open_addresses = open_addresses,
      .open_endpoint = open_endpoint,
      .place_of = place_of_peer,
      .open_passive = nullptr,
      .connection_calls = &name_calls,
  };
  return efa;
}

}  // namespace braid::fabric::fake

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini() {
  return &braid::fabric::fake::provider;
}
