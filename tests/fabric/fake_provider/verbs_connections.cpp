#include "fabric/fake_provider/verbs_connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "fabric/fake_provider/calls.h"
#include "fabric/fake_provider/domain.h"
#include "fabric/fake_provider/info.h"

namespace braid::fabric::fake {
namespace {

constexpr size_t kDataBytesMax = 56;  // VERBS_CM_DATA_SIZE
constexpr int kFirstPort = 20'000, kPortsMax = 40'000;

sockaddr_in address_in(const void* bytes, size_t size_bytes) {
  sockaddr_in address{};
  if (bytes != nullptr) std::memcpy(&address, bytes, std::min(size_bytes, sizeof address));
  return address;
}

std::string place_of(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return "braid fake verbs " + std::string(text) + ":" + std::to_string(ntohs(address.sin_port));
}

/// As an rdma_cm_id that asks to be connected.
struct Request : fid {
  std::string from;
};

int close_request(fid* handle) {
  delete static_cast<Request*>(handle);  // owner: whoever was asked
  return 0;
}
fi_ops request_fid = {sizeof(fi_ops), close_request, unsupported, unsupported,
                      unsupported,    nullptr,       nullptr};

class PassiveEndpoint : public fid_pep, public Listener {
 public:
  explicit PassiveEndpoint(const fi_info& info)
      : fid_pep{},
        info_(fi_dupinfo(&info)),
        address_(address_in(info.src_addr, info.src_addrlen)) {}
  ~PassiveEndpoint() override { bind_to(nullptr); }

  void bind_to(EventQueue* events);
  int listen();
  const sockaddr_in& address() const { return address_; }
  void reject(const Request& request, std::span<const std::byte> data);
  void take_requests(std::deque<EventQueue::Event>& events) override;

 private:
  Info info_;
  sockaddr_in address_;
  Port port_;
  EventQueue* events_ = nullptr;
};

void PassiveEndpoint::bind_to(EventQueue* events) {
  if (events_ != nullptr) {
    const std::lock_guard lock(events_->mutex);
    std::erase(events_->listeners, this);
  }
  events_ = events;
  if (events_ == nullptr) return;
  const std::lock_guard lock(events_->mutex);
  events_->listeners.push_back(this);
}

int PassiveEndpoint::listen() {
  static std::atomic<int> next = getpid() % kPortsMax;
  for (int tried = 0; tried < kPortsMax; ++tried) {
    address_.sin_port = htons(static_cast<uint16_t>(kFirstPort + next++ % kPortsMax));
    if (port_.open(place_of(address_))) return 0;
  }
  return -FI_EADDRINUSE;
}

void PassiveEndpoint::reject(const Request& request, std::span<const std::byte> data) {
  Header header;
  header.kind = Kind::kReject;
  port_.queue(request.from, header, data);
}

void PassiveEndpoint::take_requests(std::deque<EventQueue::Event>& events) {
  port_.flush();
  Packet packet;
  while (port_.receive(packet)) {
    if (packet.header.kind != Kind::kConnect || packet.bytes.size() < sizeof(sockaddr_in)) continue;
    auto* request = new Request();  // owner: the event
    request->fclass = FI_CLASS_CONNREQ;
    request->ops = &request_fid;
    request->from = packet.from;
    EventQueue::Event event;
    event.number = FI_CONNREQ;
    event.about = &fid;
    event.info = fi_dupinfo(info_.get());
    event.info->handle = request;
    event.info->dest_addr = copy_of(packet.bytes.data(), sizeof(sockaddr_in));
    event.info->dest_addrlen = sizeof(sockaddr_in);
    event.data.assign(packet.bytes.begin() + sizeof(sockaddr_in), packet.bytes.end());
    events.push_back(std::move(event));
  }
}

PassiveEndpoint& passive(fid* handle) { return object_of<PassiveEndpoint, fid_pep>(handle); }

int close_passive(fid* handle) {
  delete &passive(handle);  // owner: this endpoint
  return 0;
}

int bind_passive(fid* handle, fid* to, uint64_t) {
  if (to->fclass != FI_CLASS_EQ) return -FI_EINVAL;
  passive(handle).bind_to(&object_of<EventQueue, fid_eq>(to));
  return 0;
}

int listen_passive(fid_pep* handle) { return static_cast<PassiveEndpoint*>(handle)->listen(); }

int give(void* into, size_t* size_bytes, const void* from, size_t from_bytes) {
  std::memcpy(into, from, std::min(*size_bytes, from_bytes));
  const bool is_whole = *size_bytes >= from_bytes;
  *size_bytes = from_bytes;
  return is_whole ? 0 : -FI_ETOOSMALL;
}

int name_of_passive(fid* handle, void* address, size_t* size_bytes) {
  return give(address, size_bytes, &passive(handle).address(), sizeof(sockaddr_in));
}

int option_of_passive(fid*, int, int option, void* value, size_t* size_bytes) {
  if (option != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  return give(value, size_bytes, &kDataBytesMax, sizeof kDataBytesMax);
}

std::span<const std::byte> bytes_of(const void* data, size_t size_bytes) {
  return {static_cast<const std::byte*>(data), size_bytes};
}

int reject_request(fid_pep* handle, fid* request, const void* data, size_t size_bytes) {
  auto* refused = static_cast<Request*>(request);
  static_cast<PassiveEndpoint*>(handle)->reject(*refused, bytes_of(data, size_bytes));
  return close_request(refused);
}

fi_ops passive_fid = {sizeof(fi_ops), close_passive, bind_passive, unsupported,
                      unsupported,    nullptr,       nullptr};
fi_ops_ep passive_calls = {sizeof(fi_ops_ep), unsupported, option_of_passive, unsupported,
                           unsupported,       unsupported, unsupported,       unsupported};
fi_ops_cm passive_connections = {sizeof(fi_ops_cm), unsupported,    name_of_passive, unsupported,
                                 unsupported,       listen_passive, unsupported,     reject_request,
                                 unsupported,       unsupported};

// ---- Connected endpoints ----

int connect_endpoint(fid_ep* handle, const void* address, const void* data, size_t size_bytes) {
  auto& endpoint = *static_cast<Endpoint*>(handle);
  const std::lock_guard lock(endpoint.nic.mutex);
  if (size_bytes > kDataBytesMax || endpoint.events == nullptr) return -FI_EINVAL;
  endpoint.connect(place_of(address_in(address, sizeof(sockaddr_in))), bytes_of(data, size_bytes));
  return 0;
}

int accept_request(fid_ep* handle, const void* data, size_t size_bytes) {
  auto& endpoint = *static_cast<Endpoint*>(handle);
  const std::lock_guard lock(endpoint.nic.mutex);
  if (endpoint.peer.empty() || size_bytes > kDataBytesMax) return -FI_EINVAL;
  endpoint.accept(bytes_of(data, size_bytes));
  return 0;
}

int shut_down(fid_ep* handle, uint64_t) {
  auto& endpoint = *static_cast<Endpoint*>(handle);
  const std::lock_guard lock(endpoint.nic.mutex);
  endpoint.disconnect();
  return 0;
}

int name_of_endpoint(fid* handle, void* address, size_t* size_bytes) {
  const auto& endpoint = object_of<Endpoint, fid_ep>(handle);
  return give(address, size_bytes, endpoint.name.data(), endpoint.name.size());
}

}  // namespace

int break_connections_at(const char* address) {
  in_addr wanted{};
  if (inet_pton(AF_INET, address, &wanted) != 1) return 0;
  int broken = 0;
  for (Nic* nic : Nic::all()) {
    const std::lock_guard lock(nic->mutex);
    for (Nic::Member* member : nic->members) {
      auto* endpoint = static_cast<Endpoint*>(member);
      const sockaddr_in here = address_in(endpoint->name.data(), endpoint->name.size());
      if (here.sin_addr.s_addr != wanted.s_addr || endpoint->state != Endpoint::State::kConnected)
        continue;
      endpoint->break_connection();
      ++broken;
    }
  }
  return broken;
}

fi_ops_cm* connection_calls() {
  static fi_ops_cm calls = {sizeof(fi_ops_cm), unsupported, name_of_endpoint, unsupported,
                            connect_endpoint,  unsupported, accept_request,   unsupported,
                            shut_down,         unsupported};
  return &calls;
}

int open_connected_endpoint(fid_domain* domain, fi_info* info, fid_ep** opened, void* context) {
  static std::atomic<uint64_t> next = 0;
  Nic& nic = *static_cast<Domain*>(domain)->nic;
  const std::lock_guard lock(nic.mutex);
  auto* endpoint = new Endpoint(nic, *info);  // owner: who closes it
  endpoint->port.open("braid fake verbs " + std::to_string(getpid()) + "." +
                      std::to_string(next++));
  const sockaddr_in address = address_in(info->src_addr, info->src_addrlen);
  const auto* first = reinterpret_cast<const std::byte*>(&address);
  endpoint->name.assign(first, first + sizeof address);
  if (info->handle != nullptr) {
    auto* request = static_cast<Request*>(info->handle);
    endpoint->peer = request->from;
    close_request(request);
    info->handle = nullptr;
  }
  prepare_endpoint(*endpoint, context);
  *opened = endpoint;
  return 0;
}

int open_passive_endpoint(fid_fabric*, fi_info* info, fid_pep** opened, void* context) {
  auto* endpoint = new PassiveEndpoint(*info);  // owner: who closes it
  endpoint->fid = {FI_CLASS_PEP, context, &passive_fid};
  endpoint->ops = &passive_calls;
  endpoint->cm = &passive_connections;
  *opened = endpoint;
  return 0;
}

}  // namespace braid::fabric::fake
