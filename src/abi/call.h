// Shared by the C interfaces of braid's libraries: arguments in, status out, no exception leaves,
// and a text for each failure. Each library has a copy of this, and so a last error of its own.
// Only the folders `library/` include it.
#pragma once

#include <cstddef>
#include <exception>
#include <new>
#include <string>

#include "base/sized_struct.h"
#include "base/status.h"
#include "braid/braid.h"

namespace braid::abi {

/// Keeps the message for `last_error` in this thread, and what else is known of the failure;
/// returns the code.
braid_status report(braid_status code, std::string message, int cuda_result = 0, int cause = 0);
/// The same for a Status, under `code`, if it has failed.
inline braid_status report(const Status& status, braid_status code = BRAID_ERROR_ARGUMENT) {
  return status.ok() ? BRAID_OK
                     : report(code, status.message(), status.cuda_result(), status.cause());
}
/// The message of this thread's latest failure, valid until the next one. "" when there was none.
const char* last_error();
/// The CUresult of that failure; 0 when it did not come from the driver.
int last_cuda_error();
/// The `Status::cause` of that failure; 0 when it has none.
int last_cause();

/// The process that an engine belongs to. In a child its threads do not exist, and its memory, its
/// sockets and its contexts are the parent's. The check costs nothing at a fork, and needs no
/// system call.
class Process {
 public:
  Process() : forks_(forks_so_far()) {}
  bool is_this() const { return forks_ == forks_so_far(); }

 private:
  static int forks_so_far();

  int forks_;
};

/// The status that `body()` returns, or that of what it throws.
template <typename Body>
braid_status guarded(const Body& body) noexcept try {
  return body();
} catch (const std::bad_alloc&) {
  return report(BRAID_ERROR_MEMORY, "out of memory");  // short enough to need none
} catch (const std::exception& unexpected) {
  return report(BRAID_ERROR_UNAVAILABLE, unexpected.what());
}

/// Whether a call may use `engine`, the struct behind a handle, which has a `Process process`.
/// `needed` are the other pointers that the caller must give.
template <typename Handle, typename... Pointers>
braid_status check(const Handle* engine, const Pointers*... needed) {
  if (engine == nullptr || (... || (needed == nullptr)))
    return report(BRAID_ERROR_ARGUMENT, "a pointer that must be given is null");
  if (!engine->process.is_this())
    return report(BRAID_ERROR_UNAVAILABLE,
                  "this engine belongs to the parent process. Open one after the fork");
  return BRAID_OK;
}

/// Returns `body(engine)`, or `body(service)` if the engine has a `service`. An error if `check`
/// fails, or the service is ending.
template <typename Handle, typename Body, typename... Pointers>
braid_status guarded(Handle* engine, const Body& body, const Pointers*... needed) noexcept {
  return guarded([&] {
    if (const braid_status wrong = check(engine, needed...); wrong != BRAID_OK) return wrong;
    if constexpr (requires { engine->service; }) {
      if (engine->service->is_ending())
        return report(BRAID_ERROR_UNAVAILABLE, "this engine is being closed");
      return body(*engine->service);
    } else {
      return body(*engine);
    }
  });
}

/// As in base/sized_struct.h, with the failure kept.
template <typename Struct>
braid_status check_struct(const Struct* given, const char* name) {
  return report(check_sized(given, name));
}
template <typename Options>
braid_status read_struct(const Options* given, const char* name, Options& read) {
  return report(read_sized(given, name, read));
}

/// Copies bytes into a buffer of the caller's. A caller who only asks for their number gives no
/// buffer, and 0 for its size. `needed_bytes` may be null.
braid_status hand_out(const void* bytes, size_t size_bytes, void* buffer, size_t buffer_bytes,
                      size_t* needed_bytes);

template <typename T>
braid_status hand_out(const Result<T>& result, T* value, braid_status code = BRAID_ERROR_ARGUMENT) {
  if (!result.ok()) return report(result.status(), code);
  *value = result.value();
  return BRAID_OK;
}

}  // namespace braid::abi
