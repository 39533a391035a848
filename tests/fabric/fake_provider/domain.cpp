#include "fabric/fake_provider/domain.h"

#include <rdma/fi_errno.h>

#include <cstring>

#include "fabric/fake_provider/calls.h"

namespace braid::fabric::fake {
namespace {

// ---- Memory ----

constexpr uint64_t kWithoutCache = uint64_t{1} << 60;  // libfabric's own OFI_MR_NOCACHE

int close_region(fid* handle) {
  auto& region = object_of<Region, fid_mr>(handle);
  const std::lock_guard lock(region.nic->mutex);
  region.nic->regions.close(region);
  return 0;
}

fi_ops region_fid = {sizeof(fi_ops), close_region, unsupported, unsupported,
                     unsupported,    nullptr,      nullptr};

int register_parts(fid* handle, const iovec* parts, size_t count, uint64_t access, uint64_t,
                   uint64_t, uint64_t flags, fid_mr** registered, void* context) {
  auto& domain = object_of<Domain, fid_domain>(handle);
  if (count != 1) return -FI_EINVAL;
  Nic& nic = *domain.nic;
  const std::lock_guard lock(nic.mutex);
  Region& region = nic.regions.add(static_cast<std::byte*>(parts->iov_base), parts->iov_len, access,
                                   (flags & kWithoutCache) == 0, nic.random);
  region.fid = {FI_CLASS_MR, context, &region_fid};
  region.nic = &nic;
  *registered = &region;
  return 0;
}

int register_memory(fid* domain, const void* memory, size_t size_bytes, uint64_t access,
                    uint64_t offset, uint64_t key, uint64_t flags, fid_mr** registered,
                    void* context) {
  const iovec part{const_cast<void*>(memory), size_bytes};
  return register_parts(domain, &part, 1, access, offset, key, flags, registered, context);
}

int register_by_attributes(fid* domain, const fi_mr_attr* attributes, uint64_t flags,
                           fid_mr** registered) {
  return register_parts(domain, attributes->mr_iov, attributes->iov_count, attributes->access, 0, 0,
                        flags, registered, attributes->context);
}

fi_ops_mr memory_calls = {sizeof(fi_ops_mr), register_memory, register_parts,
                          register_by_attributes};

// ---- Postings ----

Gathered gather(const iovec* parts, void* const* descriptors, size_t count) {
  Gathered memory;
  for (size_t i = 0; i < count; ++i)
    memory.add(parts[i].iov_base, parts[i].iov_len,
               descriptors != nullptr ? descriptors[i] : nullptr);
  return memory;
}

ssize_t post(fid_ep* handle, Posting posting, fi_addr_t to) {
  auto& endpoint = *static_cast<Endpoint*>(handle);
  const std::lock_guard lock(endpoint.nic.mutex);
  posting.to = special().place_of(endpoint, to);
  posting.needs_descriptors = endpoint.nic.needs_descriptors;
  if (posting.to.empty()) return -FI_EINVAL;
  return endpoint.post(std::move(posting));
}

ssize_t post_rma(fid_ep* endpoint, Kind kind, const fi_msg_rma& message, uint64_t flags,
                 bool is_injected = false) {
  if (message.rma_iov_count != 1) return -FI_EINVAL;
  Posting posting;
  posting.kind = kind;
  posting.memory = gather(message.msg_iov, message.desc, message.iov_count);
  if (posting.memory.size_bytes != message.rma_iov->len) return -FI_EINVAL;
  posting.address = message.rma_iov->addr;
  posting.key = message.rma_iov->key;
  if ((flags & FI_REMOTE_CQ_DATA) != 0) posting.immediate = static_cast<uint32_t>(message.data);
  posting.context = message.context;
  posting.flags = FI_RMA | (kind == Kind::kRead ? FI_READ : FI_WRITE) | (flags & FI_INJECT);
  posting.is_injected = is_injected;
  return post(endpoint, std::move(posting), message.addr);
}

ssize_t write_message(fid_ep* endpoint, const fi_msg_rma* message, uint64_t flags) {
  return post_rma(endpoint, Kind::kWrite, *message, flags);
}
ssize_t read_message(fid_ep* endpoint, const fi_msg_rma* message, uint64_t flags) {
  return post_rma(endpoint, Kind::kRead, *message, flags);
}

ssize_t read_parts(fid_ep* endpoint, const iovec* parts, void** descriptors, size_t count,
                   fi_addr_t from, uint64_t address, uint64_t key, void* context) {
  const fi_rma_iov source{address, gather(parts, nullptr, count).size_bytes, key};
  const fi_msg_rma message{parts, descriptors, count, from, &source, 1, context, 0};
  return post_rma(endpoint, Kind::kRead, message, 0);
}

ssize_t write_parts(fid_ep* endpoint, const iovec* parts, void** descriptors, size_t count,
                    fi_addr_t to, uint64_t address, uint64_t key, void* context) {
  const fi_rma_iov target{address, gather(parts, nullptr, count).size_bytes, key};
  const fi_msg_rma message{parts, descriptors, count, to, &target, 1, context, 0};
  return post_rma(endpoint, Kind::kWrite, message, 0);
}

ssize_t write_bytes(fid_ep* endpoint, const void* memory, size_t size_bytes, void* descriptor,
                    fi_addr_t to, uint64_t address, uint64_t key, void* context) {
  const iovec part{const_cast<void*>(memory), size_bytes};
  return write_parts(endpoint, &part, &descriptor, 1, to, address, key, context);
}

ssize_t read_bytes(fid_ep* endpoint, void* memory, size_t size_bytes, void* descriptor,
                   fi_addr_t from, uint64_t address, uint64_t key, void* context) {
  const iovec part{memory, size_bytes};
  return read_parts(endpoint, &part, &descriptor, 1, from, address, key, context);
}

fi_ops_rma rma_calls = {sizeof(fi_ops_rma), read_bytes,    read_parts,  read_message, write_bytes,
                        write_parts,        write_message, unsupported, unsupported,  unsupported};

ssize_t send_message(fid_ep* endpoint, const fi_msg* message, uint64_t flags) {
  Posting posting;
  posting.memory = gather(message->msg_iov, message->desc, message->iov_count);
  if ((flags & FI_REMOTE_CQ_DATA) != 0) posting.immediate = static_cast<uint32_t>(message->data);
  posting.context = message->context;
  posting.flags = FI_MSG | FI_SEND | (flags & FI_INJECT);
  return post(endpoint, std::move(posting), message->addr);
}

ssize_t send_parts(fid_ep* endpoint, const iovec* parts, void** descriptors, size_t count,
                   fi_addr_t to, void* context) {
  const fi_msg message{parts, descriptors, count, to, context, 0};
  return send_message(endpoint, &message, 0);
}

ssize_t send_bytes(fid_ep* endpoint, const void* memory, size_t size_bytes, void* descriptor,
                   fi_addr_t to, void* context) {
  const iovec part{const_cast<void*>(memory), size_bytes};
  return send_parts(endpoint, &part, &descriptor, 1, to, context);
}

ssize_t inject_bytes(fid_ep* endpoint, const void* memory, size_t size_bytes, fi_addr_t to) {
  Posting posting;
  posting.memory.add(memory, size_bytes, nullptr);
  posting.is_injected = true;
  posting.flags = FI_MSG | FI_SEND;
  return post(endpoint, std::move(posting), to);
}

ssize_t receive_parts(fid_ep* handle, const iovec* parts, void** descriptors, size_t count,
                      fi_addr_t, void* context) {
  auto& endpoint = *static_cast<Endpoint*>(handle);
  const std::lock_guard lock(endpoint.nic.mutex);
  if (endpoint.is_closed()) return -FI_EOPBADSTATE;
  return endpoint.post_receive(gather(parts, descriptors, count), context);
}

ssize_t receive_bytes(fid_ep* endpoint, void* memory, size_t size_bytes, void* descriptor,
                      fi_addr_t from, void* context) {
  const iovec part{memory, size_bytes};
  return receive_parts(endpoint, &part, &descriptor, 1, from, context);
}

ssize_t receive_message(fid_ep* endpoint, const fi_msg* message, uint64_t) {
  return receive_parts(endpoint, message->msg_iov, message->desc, message->iov_count, message->addr,
                       message->context);
}

fi_ops_msg message_calls = {sizeof(fi_ops_msg), receive_bytes, receive_parts, receive_message,
                            send_bytes,         send_parts,    send_message,  inject_bytes,
                            unsupported,        unsupported};

// ---- Endpoints ----

int close_endpoint(fid* handle) {
  auto* endpoint = &object_of<Endpoint, fid_ep>(handle);
  Nic& nic = endpoint->nic;
  {
    const std::lock_guard lock(nic.mutex);
    if (nic.manners.has_connections) endpoint->disconnect();
    if (endpoint->events != nullptr) endpoint->events->forget(handle);
    endpoint->close();
  }
  return 0;
}

int bind_endpoint(fid* handle, fid* to, uint64_t flags) {
  auto& endpoint = object_of<Endpoint, fid_ep>(handle);
  const std::lock_guard lock(endpoint.nic.mutex);
  if (to->fclass == FI_CLASS_CQ) {
    auto* queue = &object_of<CompletionQueue, fid_cq>(to);
    if ((flags & FI_TRANSMIT) != 0) endpoint.sends_to = queue;
    if ((flags & FI_RECV) != 0) endpoint.receives_to = queue;
    return 0;
  }
  if (to->fclass == FI_CLASS_EQ) endpoint.events = &object_of<EventQueue, fid_eq>(to);
  if (to->fclass == FI_CLASS_AV) endpoint.addresses = reinterpret_cast<fid_av*>(to);
  return to->fclass == FI_CLASS_EQ || to->fclass == FI_CLASS_AV ? 0 : -FI_EINVAL;
}

int control_endpoint(fid* handle, int command, void*) {
  auto& endpoint = object_of<Endpoint, fid_ep>(handle);
  if (command != FI_ENABLE) return -FI_ENOSYS;
  return endpoint.sends_to != nullptr && endpoint.receives_to != nullptr ? 0 : -FI_ENOCQ;
}

fi_ops endpoint_fid = {sizeof(fi_ops), close_endpoint, bind_endpoint, control_endpoint,
                       unsupported,    nullptr,        nullptr};
fi_ops_ep endpoint_calls = {sizeof(fi_ops_ep), unsupported, unsupported, unsupported,
                            unsupported,       unsupported, unsupported, unsupported};

// ---- Domains ----

int close_domain(fid* handle) {
  delete &object_of<Domain, fid_domain>(handle);  // owner: this domain
  return 0;
}

int open_queue(fid_domain* domain, fi_cq_attr* attributes, fid_cq** queue, void* context) {
  return open_completion_queue(*static_cast<Domain*>(domain)->nic, attributes, queue, context);
}

int no_addresses(fid_domain*, fi_av_attr*, fid_av**, void*) { return -FI_ENOSYS; }

fi_ops domain_fid = {sizeof(fi_ops), close_domain, unsupported, unsupported,
                     unsupported,    nullptr,      nullptr};

int open_domain(fid_fabric*, fi_info* info, fid_domain** opened, void* context) {
  static fi_ops_domain calls = {
      sizeof(fi_ops_domain),
      special().open_addresses != nullptr ? special().open_addresses : no_addresses,
      open_queue,
      special().open_endpoint,
      unsupported,
      unsupported,
      unsupported,
      unsupported,
      unsupported,
      unsupported,
      unsupported,
      nullptr};
  auto* domain = new Domain();  // owner: who closes it
  domain->fid = {FI_CLASS_DOMAIN, context, &domain_fid};
  domain->ops = &calls;
  domain->mr = &memory_calls;
  domain->nic = std::make_unique<Nic>(special().manners);
  domain->nic->needs_descriptors = (info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
  *opened = domain;
  return 0;
}

int close_fabric(fid* handle) {
  delete reinterpret_cast<fid_fabric*>(handle);  // owner: this fabric
  return 0;
}

fi_ops fabric_fid = {sizeof(fi_ops), close_fabric, unsupported, unsupported,
                     unsupported,    nullptr,      nullptr};

int no_passive_endpoint(fid_fabric*, fi_info*, fid_pep**, void*) { return -FI_ENOSYS; }

}  // namespace

void prepare_endpoint(Endpoint& endpoint, void* context) {
  endpoint.fid = {FI_CLASS_EP, context, &endpoint_fid};
  endpoint.ops = &endpoint_calls;
  endpoint.cm = special().connection_calls;
  endpoint.msg = &message_calls;
  endpoint.rma = &rma_calls;
}

int open_fabric(fi_fabric_attr*, fid_fabric** opened, void* context) {
  static fi_ops_fabric calls = {
      sizeof(fi_ops_fabric),
      open_domain,
      special().open_passive != nullptr ? special().open_passive : no_passive_endpoint,
      open_event_queue,
      unsupported,
      unsupported,
      nullptr};
  auto* fabric = new fid_fabric();  // owner: who closes it
  fabric->fid = {FI_CLASS_FABRIC, context, &fabric_fid};
  fabric->ops = &calls;
  *opened = fabric;
  return 0;
}

}  // namespace braid::fabric::fake
