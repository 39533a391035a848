// The C interface of include/braid/fabric_abi.h: arguments in, status out; no exception leaves.
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <optional>

#include "braid/fabric_abi.h"
#include "fabric/library/service.h"

namespace {

using namespace braid::fabric;
using braid::Result;
using braid::Status;

static_assert(BRAID_FABRIC_MESSAGE_BYTES == kPayloadBytesMax);
static_assert(BRAID_FABRIC_DONE == static_cast<int>(TicketState::kDone));
static_assert(BRAID_FABRIC_FAILED == static_cast<int>(TicketState::kFailed));
static_assert(BRAID_FABRIC_QUARANTINED == static_cast<int>(TicketState::kQuarantined));
static_assert(BRAID_FABRIC_FENCED == static_cast<int>(Fence::kFenced));
static_assert(BRAID_FABRIC_MEMORY_QUARANTINED == static_cast<int>(Fence::kQuarantined));

thread_local std::string last_error;
std::atomic<int> forks = 0;

int forks_so_far() {
  static const bool is_watched =
      pthread_atfork(nullptr, nullptr, [] { ++forks; }) == 0;  // in the child
  return is_watched ? forks.load() : 0;
}

braid_status report(braid_status code, std::string message) {
  last_error = std::move(message);
  return code;
}

braid_status report(const Status& status, braid_status code = BRAID_ERROR_ARGUMENT) {
  return status.ok() ? BRAID_OK : report(code, status.message());
}

template <typename T>
braid_status hand_out(const Result<T>& result, T* value) {
  if (!result.ok()) return report(result.status());
  *value = result.value();
  return BRAID_OK;
}

braid_status hand_out(const std::vector<std::byte>& bytes, void* buffer, size_t buffer_bytes,
                      size_t* needed_bytes) {
  if (needed_bytes != nullptr) *needed_bytes = bytes.size();
  if (buffer == nullptr && buffer_bytes == 0) return BRAID_OK;
  if (buffer == nullptr || buffer_bytes < bytes.size())
    return report(BRAID_ERROR_ARGUMENT,
                  "the buffer is null, or smaller than " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(buffer, bytes.data(), bytes.size());
  return BRAID_OK;
}

Bytes bytes_of(const void* first, size_t size_bytes) {
  return {static_cast<const std::byte*>(first), size_bytes};
}

Pages pages_of(const braid_fabric_pages& pages, size_t count) {
  return {{pages.indices, pages.indices + count}, pages.stride_bytes, pages.offset_bytes};
}

std::optional<uint32_t> optional_of(const uint32_t* immediate) {
  return immediate == nullptr ? std::nullopt : std::optional(*immediate);
}

}  // namespace

struct braid_fabric {
  std::unique_ptr<Service> service;
  int forks = forks_so_far();
};

namespace {

/// `body(service)`, unless a pointer that the caller must give is null.
template <typename Body, typename... Pointers>
braid_status guarded(braid_fabric* fabric, const Body& body, const Pointers*... needed) noexcept
    try {
  if (fabric == nullptr || (... || (needed == nullptr)))
    return report(BRAID_ERROR_ARGUMENT, "a pointer that must be given is null");
  if (fabric->forks != forks_so_far())
    return report(BRAID_ERROR_UNAVAILABLE,
                  "this engine belongs to the parent process. Open one after the fork");
  return body(*fabric->service);
} catch (const std::bad_alloc&) {
  return report(BRAID_ERROR_MEMORY, "out of memory");
} catch (const std::exception& unexpected) {
  return report(BRAID_ERROR_UNAVAILABLE, unexpected.what());
}

}  // namespace

braid_status braid_fabric_open(const braid_fabric_options* options, braid_fabric** fabric) try {
  if (fabric == nullptr || (options != nullptr && options->struct_bytes < sizeof *options))
    return report(BRAID_ERROR_ARGUMENT,
                  "there is no place for the engine, or struct_bytes is not set");
  *fabric = nullptr;
  const std::string provider =
      options != nullptr && options->provider != nullptr ? options->provider : "";
  std::vector<std::string> addresses;
  if (options != nullptr)
    addresses.assign(options->addresses, options->addresses + options->address_count);
  if (addresses.empty()) addresses.push_back("127.0.0.1");
  Result<std::unique_ptr<Service>> service = Service::open(provider, addresses);
  if (!service.ok()) return report(service.status(), BRAID_ERROR_UNAVAILABLE);
  auto opened = std::make_unique<braid_fabric>();
  opened->service = std::move(service).value();
  *fabric = opened.release();  // owner: the caller, until braid_fabric_close
  return BRAID_OK;
} catch (const std::exception& unexpected) {
  return report(BRAID_ERROR_MEMORY, unexpected.what());
}

void braid_fabric_close(braid_fabric* fabric) {
  // In a child process the engine's thread does not exist, and its memory is the parent's.
  if (fabric != nullptr && fabric->forks != forks_so_far()) return;
  const std::unique_ptr<braid_fabric> closed(fabric);
}

braid_status braid_fabric_address(braid_fabric* fabric, void* buffer, size_t buffer_bytes,
                                  size_t* needed_bytes) {
  return guarded(fabric, [&](Service& service) {
    const auto bytes = service.with([](Engine& engine) { return encode(engine.address()); });
    return hand_out(bytes, buffer, buffer_bytes, needed_bytes);
  });
}

// ---- Peers ----

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

// ---- Memory ----

braid_status braid_fabric_add_region(braid_fabric* fabric, void* memory, size_t size_bytes,
                                     uint64_t* region) {
  const auto add = [&](Service& service) {
    const MutableBytes bytes(static_cast<std::byte*>(memory), size_bytes);
    return hand_out(service.with([&](Engine& engine) { return engine.add_region(bytes); }), region);
  };
  return guarded(fabric, add, memory, region);
}

braid_status braid_fabric_remove_region(braid_fabric* fabric, uint64_t region) {
  return guarded(fabric, [&](Service& service) {
    return report(service.with([&](Engine& engine) { return engine.remove_region(region); }));
  });
}

braid_status braid_fabric_grant(braid_fabric* fabric, uint64_t region, uint64_t peer,
                                uint64_t offset_bytes, uint64_t size_bytes, uint64_t* grant,
                                void* descriptor, size_t buffer_bytes, size_t* descriptor_bytes) {
  const auto give = [&](Service& service) {
    Descriptor longest;
    longest.rails.resize(
        service.with([](Engine& engine) { return engine.address().rails.size(); }));
    if (buffer_bytes < encode(longest).size())
      return report(BRAID_ERROR_ARGUMENT, "the buffer has no room for a descriptor");
    const Result<Granted> granted = service.with(
        [&](Engine& engine) { return engine.grant(region, peer, offset_bytes, size_bytes); });
    if (!granted.ok()) return report(granted.status());
    *grant = granted.value().grant;
    return hand_out(encode(granted.value().descriptor), descriptor, buffer_bytes, descriptor_bytes);
  };
  return guarded(fabric, give, grant, descriptor, descriptor_bytes);
}

braid_status braid_fabric_revoke(braid_fabric* fabric, uint64_t grant, uint64_t limit_us,
                                 int* fence) {
  const auto revoke = [&](Service& service) {
    const uint64_t end_ns = Service::after_ns(limit_us);
    const Status asked = service.with([&](Engine& engine) { return engine.revoke(grant, end_ns); });
    if (!asked.ok()) return report(asked);
    // The engine itself ends this at the limit.
    service.wait(~uint64_t{0}, [&](Engine& engine) {
      const Result<Fence> now = engine.fence(grant);
      *fence = static_cast<int>(now.ok() ? now.value() : Fence::kFenced);
      return *fence != BRAID_FABRIC_REVOKING;
    });
    return BRAID_OK;
  };
  return guarded(fabric, revoke, fence);
}

braid_status braid_fabric_fence_of(braid_fabric* fabric, uint64_t grant, int* fence) {
  const auto ask = [&](Service& service) {
    const Result<Fence> now = service.with([&](Engine& engine) { return engine.fence(grant); });
    if (!now.ok()) return report(now.status());
    *fence = static_cast<int>(now.value());
    return BRAID_OK;
  };
  return guarded(fabric, ask, fence);
}

braid_status braid_fabric_forget_grant(braid_fabric* fabric, uint64_t grant) {
  return guarded(fabric, [&](Service& service) {
    return report(service.with([&](Engine& engine) { return engine.forget_grant(grant); }));
  });
}

// ---- Writes ----

braid_status braid_fabric_open_target(braid_fabric* fabric, const void* descriptor,
                                      size_t descriptor_bytes, uint64_t* target) {
  const auto open = [&](Service& service) {
    const Result<Descriptor> decoded = decode_descriptor(bytes_of(descriptor, descriptor_bytes));
    if (!decoded.ok()) return report(decoded.status());
    return hand_out(
        service.with([&](Engine& engine) { return engine.open_target(decoded.value()); }), target);
  };
  return guarded(fabric, open, descriptor, target);
}

braid_status braid_fabric_write(braid_fabric* fabric, uint64_t region, uint64_t source_offset_bytes,
                                uint64_t target, uint64_t target_offset_bytes, uint64_t size_bytes,
                                const uint32_t* immediate, uint64_t limit_us, uint64_t* ticket) {
  const auto write = [&](Service& service) {
    const Slice slice{source_offset_bytes, target_offset_bytes, size_bytes};
    return hand_out(service.with([&](Engine& engine) {
      return engine.write(region, target, slice, optional_of(immediate),
                          Service::after_ns(limit_us));
    }),
                    ticket);
  };
  return guarded(fabric, write, ticket);
}

braid_status braid_fabric_write_pages(braid_fabric* fabric, uint64_t region,
                                      const braid_fabric_pages* source, uint64_t target,
                                      const braid_fabric_pages* destination, uint64_t page_bytes,
                                      size_t page_count, const uint32_t* immediate,
                                      uint64_t limit_us, uint64_t* ticket) {
  const auto write = [&](Service& service) {
    return hand_out(service.with([&](Engine& engine) {
      return engine.write_pages(region, target, page_bytes, pages_of(*source, page_count),
                                pages_of(*destination, page_count), optional_of(immediate),
                                Service::after_ns(limit_us));
    }),
                    ticket);
  };
  return guarded(fabric, write, source, destination, ticket);
}

braid_status braid_fabric_notify(braid_fabric* fabric, uint64_t peer, uint32_t immediate,
                                 uint64_t limit_us, uint64_t* ticket) {
  const auto notify = [&](Service& service) {
    return hand_out(service.with([&](Engine& engine) {
      return engine.notify(peer, immediate, Service::after_ns(limit_us));
    }),
                    ticket);
  };
  return guarded(fabric, notify, ticket);
}

braid_status braid_fabric_wait_ticket(braid_fabric* fabric, uint64_t ticket, uint64_t limit_us,
                                      int* state) {
  const auto wait = [&](Service& service) {
    Result<TicketState> now = TicketState::kPending;
    service.wait(limit_us, [&](Engine& engine) {
      now = engine.state(ticket);
      return !now.ok() || now.value() != TicketState::kPending;
    });
    if (!now.ok()) return report(now.status());
    *state = static_cast<int>(now.value());
    return BRAID_OK;
  };
  return guarded(fabric, wait, state);
}

void braid_fabric_forget_ticket(braid_fabric* fabric, uint64_t ticket) {
  (void)guarded(fabric, [&](Service& service) {
    service.with([&](Engine& engine) { engine.forget(ticket); });
    return BRAID_OK;
  });
}

// ---- Immediates and messages ----

braid_status braid_fabric_acquire_immediate(braid_fabric* fabric, uint32_t* immediate) {
  const auto acquire = [&](Service& service) {
    return hand_out(service.with([](Engine& engine) { return engine.counters().acquire(); }),
                    immediate);
  };
  return guarded(fabric, acquire, immediate);
}

braid_status braid_fabric_wait_count(braid_fabric* fabric, uint32_t immediate, uint64_t count,
                                     uint64_t limit_us, uint64_t* arrived) {
  return guarded(fabric, [&](Service& service) {
    uint64_t now = 0;
    bool is_claimed = true;
    service.wait(limit_us, [&](Engine& engine) {
      is_claimed = engine.counters().is_claimed(immediate);
      now = engine.counters().count(immediate);
      return !is_claimed || now >= count;
    });
    if (!is_claimed) return report(BRAID_ERROR_ARGUMENT, "this immediate has no owner");
    if (arrived != nullptr) *arrived = now;
    return BRAID_OK;
  });
}

braid_status braid_fabric_release_immediate(braid_fabric* fabric, uint32_t immediate,
                                            uint64_t missing) {
  return guarded(fabric, [&](Service& service) {
    return report(service.with(
        [&](Engine& engine) { return engine.counters().release(immediate, missing); }));
  });
}

uint64_t braid_fabric_immediates_of_write(uint64_t size_bytes) {
  return immediates_of_write(size_bytes);
}

uint64_t braid_fabric_immediates_of_pages(uint64_t page_bytes, uint64_t page_count) {
  return immediates_of_pages(page_bytes, page_count);
}

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

const char* braid_fabric_last_error() { return last_error.c_str(); }
