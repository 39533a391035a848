// What the errors of a file system are as causes of requests.
#pragma once

#include <cerrno>

#include "transfer/types.h"

namespace braid::transfer {

/// Of an errno. kFileError: it is no fault of the storage.
constexpr Cause cause_of_storage(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return Cause::kNoSpace;
    case EROFS: return Cause::kReadOnly;
    case EIO: return Cause::kDeviceError;
    default: return Cause::kFileError;
  }
}

}  // namespace braid::transfer
