// How the library's inside says that a call failed.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"
#include "braid/braid.h"

namespace braid::library {

struct [[nodiscard]] Error {
  braid_status code = BRAID_OK;
  std::string message;
  int cuda_result = 0;  ///< the CUresult, when the driver refused

  static Error none() { return {}; }
  static Error argument(std::string message) {
    return {BRAID_ERROR_ARGUMENT, std::move(message), 0};
  }
  /// What a Status says, under `code`; none for a Status that is ok.
  static Error from(const Status& status, braid_status code) {
    return status.ok() ? none() : Error{code, status.message(), status.cuda_result()};
  }
  bool ok() const { return code == BRAID_OK; }
};

/// For BRAID_TRY (base/try.h).
inline bool failed(const Error& error) { return !error.ok(); }

}  // namespace braid::library
