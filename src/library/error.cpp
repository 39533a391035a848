#include "library/error.h"

namespace braid::library {
namespace {

thread_local Error last;

}  // namespace

braid_status report(Error error) {
  const braid_status code = error.code;
  if (!error.ok()) last = std::move(error);
  return code;
}

const Error& last_error() noexcept { return last; }

}  // namespace braid::library
