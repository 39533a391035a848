// The C interface: peers and messages.
#include <sstream>

#include "fabric/library/abi.h"

using namespace braid::fabric;
using namespace braid::fabric::abi;
using braid::Result;
using braid::Status;

static_assert(BRAID_FABRIC_NOT_LOST == static_cast<int>(PeerFailure::kNone));
static_assert(BRAID_FABRIC_NO_ANSWER == static_cast<int>(PeerFailure::kNoAnswer));
static_assert(BRAID_FABRIC_UNREACHABLE == static_cast<int>(PeerFailure::kNetwork));
static_assert(BRAID_FABRIC_SILENT == static_cast<int>(PeerFailure::kSilent));
static_assert(BRAID_FABRIC_ENDED == static_cast<int>(PeerFailure::kEnded));
static_assert(BRAID_FABRIC_LEFT == static_cast<int>(PeerFailure::kLeft));
static_assert(BRAID_FABRIC_GAVE_UP == static_cast<int>(PeerFailure::kGaveUs));
static_assert(BRAID_FABRIC_REPLACED == static_cast<int>(PeerFailure::kReplaced));
static_assert(BRAID_FABRIC_TOO_MUCH == static_cast<int>(PeerFailure::kTooMuch));

namespace {

/// The bytes that have come from the peer already are read in milliseconds.
constexpr uint64_t kDrainUs = 1'000'000;

Status why_not_connected(PeerFailure why, uint64_t limit_us) {
  switch (why) {
    case PeerFailure::kNetwork:
      return Status::error(
          "the peer cannot be reached: what was sent to it has failed, so its engine is closed, or "
          "the network does not lead there",
          "Take its address anew");
    case PeerFailure::kEnded:
      return Status::error("the peer's process has ended", "Take the address of a new one");
    case PeerFailure::kLeft:
    case PeerFailure::kGaveUs:
      return Status::error("the peer has disconnected before it was connected", "Connect again");
    default: break;
  }
  std::ostringstream seconds;
  seconds << static_cast<double>(limit_us) / 1e6;
  return Status::error(
      "the peer has not answered within " + seconds.str() +
      " s: it is gone, is another process, has another secret, has no room for another peer (over "
      "shm an engine takes 63, see docs/fabric.md), or does not work");
}

void wait_drained(Service& service, uint64_t peer) {
  service.wait(kDrainUs, [&](Engine& engine) { return !engine.is_draining(peer); });
}

}  // namespace

braid_status braid_fabric_connect(braid_fabric* fabric, const void* address, size_t address_bytes,
                                  uint64_t limit_us, uint64_t* peer) {
  const auto connect = [&](Service& service) {
    const Secret secret = service.with([](Engine& engine) { return engine.secret(); });
    const Result<Address> decoded = decode_address(bytes_of(address, address_bytes), secret);
    if (!decoded.ok()) return report(decoded.status());
    const uint64_t end_ns = braid::monotonic_after_ns(limit_us);
    const Result<uint64_t> connecting =
        service.with([&](Engine& engine) { return engine.connect(decoded.value(), end_ns); });
    if (!connecting.ok()) return report(connecting.status());
    Result<PeerState> state = PeerState::kConnecting;
    service.wait(limit_us, [&](Engine& engine) {
      state = engine.peer_state(connecting.value());
      return !state.ok() || state.value() != PeerState::kConnecting;
    });
    if (state.ok() && state.value() == PeerState::kConnected) return hand_out(connecting, peer);
    const Result<PeerFailure> why =
        service.with([&](Engine& engine) { return engine.peer_failure(connecting.value()); });
    (void)service.with([&](Engine& engine) { return engine.disconnect(connecting.value()); });
    return report(why_not_connected(why.ok() ? why.value() : PeerFailure::kLeft, limit_us),
                  BRAID_ERROR_UNAVAILABLE);
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
    const Status disconnected =
        service.with([&](Engine& engine) { return engine.disconnect(peer); });
    wait_drained(service, peer);
    return report(disconnected);
  });
}

braid_status braid_fabric_wait_lost(braid_fabric* fabric, uint64_t limit_us, uint64_t* peer,
                                    int* why) {
  const auto wait = [&](Service& service) {
    *peer = 0;
    *why = BRAID_FABRIC_NOT_LOST;
    service.wait(limit_us, [&](Engine& engine) {
      std::optional<uint64_t> lost = engine.next_failed();
      // A peer that has never answered is reported by its connect alone.
      while (lost && !engine.was_connected(*lost)) lost = engine.next_failed();
      if (!lost) return false;
      *peer = *lost;
      *why = static_cast<int>(engine.peer_failure(*lost).value());
      return true;
    });
    if (*peer != 0) wait_drained(service, *peer);
    return BRAID_OK;
  };
  return guarded(fabric, wait, peer, why);
}

// ---- Messages ----

braid_status braid_fabric_send(braid_fabric* fabric, uint64_t peer, const void* message,
                               size_t message_bytes) {
  return guarded(fabric, [&](Service& service) {
    if (message_bytes > kPayloadBytesMax)
      return report(Status::error("the message has " + std::to_string(message_bytes) +
                                      " bytes, and the limit is " +
                                      std::to_string(kPayloadBytesMax),
                                  "Write larger things into memory that the peer has granted"));
    if (message == nullptr && message_bytes > 0)
      return report(BRAID_ERROR_ARGUMENT, "the message is null");
    const Status sent = service.with(
        [&](Engine& engine) { return engine.send(peer, bytes_of(message, message_bytes)); });
    if (sent.ok()) return BRAID_OK;
    return report(sent, code_for_peer(service, peer, BRAID_ERROR_UNAVAILABLE));
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
