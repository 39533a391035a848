// Helpers of the files of the C interface (abi_*.cpp): they check arguments, return a status, and
// let no exception out.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "braid/transfer_abi.h"
#include "host/allocation.h"
#include "transfer/failure.h"
#include "transfer/library/service.h"

namespace braid::transfer::abi {

/// How many forks lie between this process and the one that opened the first engine.
int forks_so_far();

}  // namespace braid::transfer::abi

struct braid_transfer {
  std::map<uint64_t, braid::MappedPages> allocations;  // by buffer; after the service
  std::set<uint64_t> retired;  // buffers that peers had not let go when unregister returned
  std::mutex mutex;            // of `allocations` and `retired`
  std::unique_ptr<braid::transfer::Service> service;
  int forks = braid::transfer::abi::forks_so_far();
};

namespace braid::transfer::abi {

/// Sets what braid_transfer_last_error and braid_transfer_last_cause return in this thread, and
/// returns `code`. kNone: the error has none of the causes.
braid_status report(braid_status code, std::string message, Cause cause = Cause::kNone);

inline braid_status report(const Status& status, braid_status code = BRAID_ERROR_ARGUMENT) {
  return status.ok() ? BRAID_OK : report(code, status.message(), cause_of(status));
}

template <typename T>
braid_status hand_out(const Result<T>& result, T* value, braid_status code = BRAID_ERROR_ARGUMENT) {
  if (!result.ok()) return report(result.status(), code);
  *value = result.value();
  return BRAID_OK;
}

/// Whether none of the texts is null.
bool is_list(const char* const* texts, size_t count);
std::vector<std::string> list_of(const char* const* texts, size_t count);

/// An error: the operation or the urgency is invalid.
Status check_request(const braid_transfer_request& given);
inline bool is_urgency(int urgency) {
  return urgency == BRAID_TRANSFER_BULK || urgency == BRAID_TRANSFER_URGENT;
}
Request request_of(const braid_transfer_request& given);

inline constexpr const char* kWrongRights = "rights are bits: may read, may write";
inline bool are_rights(int rights) { return (rights & ~(kMayRead | kMayWrite)) == 0; }

/// Copies text out as braid_transfer_name describes.
braid_status hand_out(const std::string& text, char* buffer, size_t buffer_bytes,
                      size_t* needed_bytes);

/// Calls `body(service)`, unless a pointer that the caller must give is null, or the engine cannot
/// be used here.
template <typename Body, typename... Pointers>
braid_status guarded(braid_transfer* transfer, const Body& body, const Pointers*... needed) noexcept
    try {
  if (transfer == nullptr || (... || (needed == nullptr)))
    return report(BRAID_ERROR_ARGUMENT, "a pointer that must be given is null");
  if (transfer->forks != forks_so_far())
    return report(BRAID_ERROR_UNAVAILABLE,
                  "this engine belongs to the parent process. Open one after the fork");
  if (transfer->service->is_ending())
    return report(BRAID_ERROR_UNAVAILABLE, "this engine is being closed");
  return body(*transfer->service);
} catch (const std::bad_alloc&) {
  return report(BRAID_ERROR_MEMORY, "out of memory");
} catch (const std::exception& unexpected) {
  return report(BRAID_ERROR_UNAVAILABLE, unexpected.what());
}

}  // namespace braid::transfer::abi
