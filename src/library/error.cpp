#include "library/error.h"

#include "base/kept_by_thread.h"

namespace braid::library {
namespace {

constexpr const char* kNotKept = "the thread is ending: braid keeps no error for it any more";

}  // namespace

braid_status report(Error error) {
  const braid_status code = error.code;
  if (Error* last = kept_by_thread<Error>(); last != nullptr && !error.ok())
    *last = std::move(error);
  return code;
}

const Error& last_error() noexcept {
  // owner: the process, until its end
  static const Error& not_kept = *new Error{BRAID_ERROR_MEMORY, kNotKept};
  const Error* last = kept_by_thread<Error>();
  return last != nullptr ? *last : not_kept;
}

}  // namespace braid::library
