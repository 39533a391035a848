// The C interface: events, by callbacks or through a descriptor.
#include "fabric/library/abi.h"

using namespace braid::fabric;
using namespace braid::fabric::abi;
using braid::Status;

static_assert(BRAID_FABRIC_PEER_CONNECTED == static_cast<int>(PeerState::kConnected));
static_assert(BRAID_FABRIC_PEER_LOST == static_cast<int>(PeerState::kFailed));

namespace {

/// Service::ask, with the code for a refusal: it may also be that the engine is being closed.
template <typename Ask>
braid_status ask(Service& service, const Sink& sink, const Ask& what) {
  const Status asked = service.ask(sink, what);
  return report(asked, service.is_ending() ? BRAID_ERROR_UNAVAILABLE : BRAID_ERROR_ARGUMENT);
}

}  // namespace

braid_status braid_fabric_on_ticket(braid_fabric* fabric, uint64_t ticket,
                                    braid_fabric_callback callback, void* user) {
  return guarded(fabric, [&](Service& service) {
    return ask(service, {callback, user}, [&](Engine& engine, uint64_t request) {
      return engine.when_ended(ticket, request);
    });
  });
}

braid_status braid_fabric_on_count(braid_fabric* fabric, uint32_t immediate, uint64_t count,
                                   braid_fabric_callback callback, void* user) {
  return guarded(fabric, [&](Service& service) {
    return ask(service, {callback, user}, [&](Engine& engine, uint64_t request) {
      return engine.when_counted(immediate, count, request);
    });
  });
}

braid_status braid_fabric_on_peers(braid_fabric* fabric, braid_fabric_callback callback,
                                   void* user) {
  return guarded(fabric, [&](Service& service) {
    return ask(service, {callback, user}, [&](Engine& engine, uint64_t request) {
      engine.completions().watch_peers(request);
      return Status();
    });
  });
}

braid_status braid_fabric_on_messages(braid_fabric* fabric, braid_fabric_callback callback,
                                      void* user) {
  return guarded(fabric, [&](Service& service) {
    return ask(service, {callback, user}, [&](Engine& engine, uint64_t request) {
      engine.watch_messages(request);
      return Status();
    });
  });
}

braid_status braid_fabric_stream_wait_count(braid_fabric* fabric, uint32_t immediate,
                                            uint64_t /*count*/, void* /*stream*/) {
  return guarded(fabric, [&](Service& service) {
    return report(
        service.with([&](Engine& engine) { return engine.refuse_stream_wait(immediate); }),
        BRAID_ERROR_UNAVAILABLE);
  });
}

braid_status braid_fabric_event_descriptor(braid_fabric* fabric, int* descriptor) {
  const auto ask = [&](Service& service) {
    *descriptor = service.events().descriptor();
    return BRAID_OK;
  };
  return guarded(fabric, ask, descriptor);
}

braid_status braid_fabric_take_events(braid_fabric* fabric, braid_fabric_event* events,
                                      size_t capacity, size_t* count) {
  const auto take = [&](Service& service) {
    *count = service.events().take({events, capacity});
    return BRAID_OK;
  };
  return guarded(fabric, take, events, count);
}
