// The C interface: peers and messages.
#include "fabric/library/abi.h"

using namespace braid::fabric;
using namespace braid::fabric::abi;
using braid::Result;
using braid::Status;

braid_status braid_fabric_connect(braid_fabric* fabric, const void* address, size_t address_bytes,
                                  uint64_t limit_us, uint64_t* peer) {
  const auto connect = [&](Service& service) {
    const Result<Address> decoded = decode_address(bytes_of(address, address_bytes));
    if (!decoded.ok()) return report(decoded.status());
    const uint64_t end_ns = Service::after_ns(limit_us);
    const Result<uint64_t> connecting =
        service.with([&](Engine& engine) { return engine.connect(decoded.value(), end_ns); });
    if (!connecting.ok()) return report(connecting.status());
    PeerState state = PeerState::kConnecting;
    service.wait(limit_us, [&](Engine& engine) {
      state = engine.peer_state(connecting.value()).value();
      return state != PeerState::kConnecting;
    });
    if (state == PeerState::kConnected) return hand_out(connecting, peer);
    (void)service.with([&](Engine& engine) { return engine.disconnect(connecting.value()); });
    return report(BRAID_ERROR_UNAVAILABLE,
                  "the peer has not answered: it is gone, is another process, or does not work");
  };
  return guarded(fabric, connect, address, peer);
}

braid_status braid_fabric_accept(braid_fabric* fabric, uint64_t limit_us, uint64_t* peer) {
  const auto accept = [&](Service& service) {
    std::optional<uint64_t> newcomer;
    service.wait(limit_us, [&](Engine& engine) {
      newcomer = engine.accept();
      return newcomer.has_value();
    });
    *peer = newcomer.value_or(0);
    return BRAID_OK;
  };
  return guarded(fabric, accept, peer);
}

braid_status braid_fabric_disconnect(braid_fabric* fabric, uint64_t peer) {
  return guarded(fabric, [&](Service& service) {
    return report(service.with([&](Engine& engine) { return engine.disconnect(peer); }));
  });
}

// ---- Messages ----

braid_status braid_fabric_send(braid_fabric* fabric, uint64_t peer, const void* message,
                               size_t message_bytes) {
  return guarded(fabric, [&](Service& service) {
    if (message_bytes > kPayloadBytesMax || (message == nullptr && message_bytes > 0))
      return report(BRAID_ERROR_ARGUMENT, "the message is null, or too long");
    return report(service.with([&](Engine& engine) {
      return engine.send(peer, bytes_of(message, message_bytes));
    }),
                  BRAID_ERROR_UNAVAILABLE);
  });
}

braid_status braid_fabric_receive(braid_fabric* fabric, uint64_t limit_us, void* buffer,
                                  size_t* message_bytes, uint64_t* peer) {
  const auto receive = [&](Service& service) {
    std::optional<Received> received;
    service.wait(limit_us, [&](Engine& engine) {
      received = engine.receive();
      return received.has_value();
    });
    *peer = received ? received->peer : 0;
    *message_bytes = received ? received->payload.size() : 0;
    if (*message_bytes > 0) std::memcpy(buffer, received->payload.data(), *message_bytes);
    return BRAID_OK;
  };
  return guarded(fabric, receive, buffer, message_bytes, peer);
}
