// The C interface: writes, their tickets, immediates.
#include "fabric/library/abi.h"

using namespace braid::fabric;
using namespace braid::fabric::abi;
using braid::Result;
using braid::Status;

namespace {

Pages pages_of(const braid_fabric_pages& pages, size_t count) {
  return {{pages.indices, pages.indices + count}, pages.stride_bytes, pages.offset_bytes};
}

}  // namespace

braid_status braid_fabric_write(braid_fabric* fabric, uint64_t region, uint64_t source_offset_bytes,
                                uint64_t target, uint64_t target_offset_bytes, uint64_t size_bytes,
                                const uint32_t* immediate, const braid_fabric_rails* rails,
                                uint64_t limit_us, uint64_t* ticket) {
  const auto write = [&](Service& service) {
    const Slice slice{source_offset_bytes, target_offset_bytes, size_bytes};
    const Result<uint64_t> begun = service.with([&](Engine& engine) {
      return engine.write(region, target, slice, optional_of(immediate),
                          braid::monotonic_after_ns(limit_us), range_of(rails));
    });
    return begun.ok() ? hand_out(begun, ticket)
                      : report(begun.status(), code_for_target(service, target));
  };
  return guarded(fabric, write, ticket);
}

braid_status braid_fabric_write_pages(braid_fabric* fabric, uint64_t region,
                                      const braid_fabric_pages* source, uint64_t target,
                                      const braid_fabric_pages* destination, uint64_t page_bytes,
                                      size_t page_count, const uint32_t* immediate,
                                      const braid_fabric_rails* rails, uint64_t limit_us,
                                      uint64_t* ticket) {
  const auto write = [&](Service& service) {
    if (page_count > 0 && (source->indices == nullptr || destination->indices == nullptr))
      return report(BRAID_ERROR_ARGUMENT, "a list of pages is null, and page_count counts them");
    const Result<uint64_t> begun = service.with([&](Engine& engine) {
      return engine.write_pages(region, target, page_bytes, pages_of(*source, page_count),
                                pages_of(*destination, page_count), optional_of(immediate),
                                braid::monotonic_after_ns(limit_us), range_of(rails));
    });
    return begun.ok() ? hand_out(begun, ticket)
                      : report(begun.status(), code_for_target(service, target));
  };
  return guarded(fabric, write, source, destination, ticket);
}

braid_status braid_fabric_notify(braid_fabric* fabric, uint64_t peer, uint32_t immediate,
                                 uint64_t limit_us, uint64_t* ticket) {
  const auto notify = [&](Service& service) {
    const Result<uint64_t> begun = service.with([&](Engine& engine) {
      return engine.notify(peer, immediate, braid::monotonic_after_ns(limit_us));
    });
    return begun.ok() ? hand_out(begun, ticket)
                      : report(begun.status(), code_for_peer(service, peer));
  };
  return guarded(fabric, notify, ticket);
}

braid_status braid_fabric_wait_ticket(braid_fabric* fabric, uint64_t ticket, uint64_t limit_us,
                                      int* state) {
  const auto wait = [&](Service& service) {
    Result<TicketState> now = TicketState::kPending;
    service.wait(limit_us, [&](const Engine& engine) {
      now = engine.state(ticket);
      return !now.ok() || now.value() != TicketState::kPending;
    });
    if (!now.ok()) return report(now.status());
    *state = static_cast<int>(now.value());
    return BRAID_OK;
  };
  return guarded(fabric, wait, state);
}

braid_status braid_fabric_cancel_ticket(braid_fabric* fabric, uint64_t ticket) {
  return guarded(fabric, [&](Service& service) {
    return report(service.with([&](Engine& engine) { return engine.cancel(ticket); }));
  });
}

void braid_fabric_forget_ticket(braid_fabric* fabric, uint64_t ticket) {
  (void)guarded(fabric, [&](Service& service) {
    service.with([&](Engine& engine) { engine.forget(ticket); });
    return BRAID_OK;
  });
}

// ---- Immediates ----

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
    service.wait(limit_us, [&](const Engine& engine) {
      is_claimed = engine.counters().is_claimed(immediate);
      now = engine.counters().count(immediate);
      return !is_claimed || now >= count;
    });
    if (!is_claimed)
      return report(BRAID_ERROR_ARGUMENT,
                    "immediate " + std::to_string(immediate) +
                        " has no owner: it was not acquired here, or is released");
    if (arrived != nullptr) *arrived = now;
    return BRAID_OK;
  });
}

braid_status braid_fabric_release_immediate(braid_fabric* fabric, uint32_t immediate,
                                            uint64_t missing) {
  return guarded(fabric, [&](Service& service) {
    return report(
        service.with([&](Engine& engine) { return engine.release_immediate(immediate, missing); }));
  });
}

braid_status braid_fabric_forgive_immediate(braid_fabric* fabric, uint32_t immediate) {
  return guarded(fabric, [&](Service& service) {
    service.with([&](Engine& engine) { engine.counters().forgive(immediate); });
    return BRAID_OK;
  });
}

uint64_t braid_fabric_immediates_of_write(uint64_t size_bytes) {
  return immediates_of_write(size_bytes);
}

uint64_t braid_fabric_immediates_of_pages(uint64_t page_bytes, uint64_t page_count) {
  return immediates_of_pages(page_bytes, page_count);
}
