// Shared by the files of the C interface (abi_*.cpp): arguments in, status out, and no exception
// leaves.
#pragma once

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "braid/fabric_abi.h"
#include "fabric/library/service.h"

namespace braid::fabric::abi {

/// The number of forks that lie between the process that opened the first engine and this one.
int forks_so_far();

}  // namespace braid::fabric::abi

struct braid_fabric {
  std::unique_ptr<braid::fabric::Service> service;
  int forks = braid::fabric::abi::forks_so_far();
};

namespace braid::fabric::abi {

/// Sets the text that braid_fabric_last_error returns in this thread.
braid_status report(braid_status code, std::string message);

inline braid_status report(const Status& status, braid_status code = BRAID_ERROR_ARGUMENT) {
  return status.ok() ? BRAID_OK : report(code, status.message());
}

template <typename T>
braid_status hand_out(const Result<T>& result, T* value, braid_status code = BRAID_ERROR_ARGUMENT) {
  if (!result.ok()) return report(result.status(), code);
  *value = result.value();
  return BRAID_OK;
}

/// Copies the bytes as braid_fabric_address says.
braid_status hand_out(const std::vector<std::byte>& bytes, void* buffer, size_t buffer_bytes,
                      size_t* needed_bytes);

inline Bytes bytes_of(const void* first, size_t size_bytes) {
  return {static_cast<const std::byte*>(first), size_bytes};
}

inline std::optional<uint32_t> optional_of(const uint32_t* immediate) {
  return immediate == nullptr ? std::nullopt : std::optional(*immediate);
}

/// The code for a refused call: whether this peer is lost, or not known at all.
inline braid_status code_for_peer(Service& service, uint64_t peer,
                                  braid_status otherwise = BRAID_ERROR_ARGUMENT) {
  return service.with([&](Engine& engine) {
    if (engine.is_lost(peer)) return BRAID_ERROR_PEER;
    return engine.peer_state(peer).ok() ? otherwise : BRAID_ERROR_ARGUMENT;
  });
}
/// The same for the owner of this target.
inline braid_status code_for_target(Service& service, uint64_t target) {
  return service.with([&](Engine& engine) { return engine.is_orphan(target); })
             ? BRAID_ERROR_PEER
             : BRAID_ERROR_ARGUMENT;
}

/// Returns `body(service)`, unless a pointer that the caller must give is null.
template <typename Body, typename... Pointers>
braid_status guarded(braid_fabric* fabric, const Body& body, const Pointers*... needed) noexcept
    try {
  if (fabric == nullptr || (... || (needed == nullptr)))
    return report(BRAID_ERROR_ARGUMENT, "a pointer that must be given is null");
  if (fabric->forks != forks_so_far())
    return report(BRAID_ERROR_UNAVAILABLE,
                  "this engine belongs to the parent process. Open one after the fork");
  if (fabric->service->is_ending())
    return report(BRAID_ERROR_UNAVAILABLE, "this engine is being closed");
  return body(*fabric->service);
} catch (const std::bad_alloc&) {
  return report(BRAID_ERROR_MEMORY, "out of memory");
} catch (const std::exception& unexpected) {
  return report(BRAID_ERROR_UNAVAILABLE, unexpected.what());
}

}  // namespace braid::fabric::abi
