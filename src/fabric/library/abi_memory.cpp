// The C interface: regions, grants, targets.
#include <cstdint>

#include "fabric/library/abi.h"

using namespace braid::fabric;
using namespace braid::fabric::abi;
using braid::Result;
using braid::Status;

braid_status braid_fabric_add_region(braid_fabric* fabric, void* memory, size_t size_bytes,
                                     uint64_t* region) {
  const auto add = [&](Service& service) {
    if (size_bytes == 0) return report(BRAID_ERROR_ARGUMENT, "a region has at least one byte");
    if (size_bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(memory))
      return report(BRAID_ERROR_ARGUMENT, "the region ends beyond the address space");
    const MutableBytes bytes(static_cast<std::byte*>(memory), size_bytes);
    return hand_out(service.add_region(bytes), region, BRAID_ERROR_REGION);
  };
  return guarded(fabric, add, memory, region);
}

braid_status braid_fabric_allocate_memory(braid_fabric* fabric, size_t size_bytes, void** memory,
                                          uint64_t* region) {
  const auto allocate = [&](Service& service) {
    const Result<Service::Allocated> made = service.allocate_memory(size_bytes);
    if (!made.ok()) return report(made.status(), BRAID_ERROR_MEMORY);
    *memory = made.value().memory;
    *region = made.value().region;
    return BRAID_OK;
  };
  return guarded(fabric, allocate, memory, region);
}

braid_status braid_fabric_remove_region(braid_fabric* fabric, uint64_t region) {
  return guarded(fabric, [&](Service& service) { return report(service.remove_region(region)); });
}

braid_status braid_fabric_grant(braid_fabric* fabric, uint64_t region, uint64_t peer,
                                uint64_t offset_bytes, uint64_t size_bytes, uint64_t* grant,
                                void* descriptor, size_t buffer_bytes, size_t* descriptor_bytes) {
  const auto give = [&](Service& service) {
    *descriptor_bytes = service.with([](Engine& engine) {
      Descriptor longest;
      longest.rails.resize(engine.address().rails.size());
      return encode(longest, engine.secret()).size();
    });
    if (descriptor == nullptr || buffer_bytes < *descriptor_bytes)
      return report(Status::error("the descriptor needs " + std::to_string(*descriptor_bytes) +
                                      " bytes, and the buffer has " +
                                      std::to_string(descriptor == nullptr ? 0 : buffer_bytes),
                                  "Give a larger one: 512 bytes are enough"));
    const Status wrong = service.with(
        [&](Engine& engine) { return engine.check_grant(region, peer, offset_bytes, size_bytes); });
    if (!wrong.ok()) return report(wrong, code_for_peer(service, peer));
    const Result<Granted> granted = service.with(
        [&](Engine& engine) { return engine.grant(region, peer, offset_bytes, size_bytes); });
    if (!granted.ok())
      return report(granted.status(), code_for_peer(service, peer, BRAID_ERROR_REGION));
    *grant = granted.value().grant;
    const auto bytes = service.with(
        [&](Engine& engine) { return encode(granted.value().descriptor, engine.secret()); });
    return hand_out(bytes.data(), bytes.size(), descriptor, buffer_bytes, descriptor_bytes);
  };
  return guarded(fabric, give, grant, descriptor, descriptor_bytes);
}

braid_status braid_fabric_revoke(braid_fabric* fabric, uint64_t grant, uint64_t limit_us,
                                 int* fence) {
  const auto revoke = [&](Service& service) {
    const uint64_t end_ns = braid::monotonic_after_ns(limit_us);
    bool was_late = false;  // the answer may still come
    const Status asked = service.with([&](Engine& engine) {
      const Result<Fence> before = engine.fence(grant);
      was_late = before.ok() && before.value() == Fence::kQuarantined;
      return engine.revoke(grant, end_ns);
    });
    if (!asked.ok()) return report(asked);
    const bool is_answered = service.wait(limit_us, [&](Engine& engine) {
      const Result<Fence> now = engine.fence(grant);
      *fence = static_cast<int>(now.ok() ? now.value() : Fence::kFenced);
      return *fence == BRAID_FABRIC_FENCED || (*fence != BRAID_FABRIC_REVOKING && !was_late);
    });
    // The engine says so too, with its next step.
    if (!is_answered) *fence = BRAID_FABRIC_MEMORY_QUARANTINED;
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

braid_status braid_fabric_open_target(braid_fabric* fabric, const void* descriptor,
                                      size_t descriptor_bytes, uint64_t* target) {
  const auto open = [&](Service& service) {
    const Secret secret = service.with([](Engine& engine) { return engine.secret(); });
    const Result<Descriptor> decoded =
        decode_descriptor(bytes_of(descriptor, descriptor_bytes), secret);
    if (!decoded.ok()) return report(decoded.status());
    const Result<uint64_t> opened =
        service.with([&](Engine& engine) { return engine.open_target(decoded.value()); });
    if (opened.ok()) return hand_out(opened, target);
    const std::optional<uint64_t> owner =
        service.with([&](Engine& engine) { return engine.find_peer(decoded.value().owner); });
    return report(opened.status(), code_for_peer(service, owner.value_or(0)));
  };
  return guarded(fabric, open, descriptor, target);
}
