// libfabric, opened when it is used: braid links nothing of it. Most of its interface are inline
// functions over tables that these few hand out.
#pragma once

#include <rdma/fabric.h>

#include <string>

#include "base/status.h"

namespace braid::fabric::ofi {

struct Library {
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_version) version = nullptr;

  void* handle = nullptr;  ///< of dlopen
  /// See robust_locks.h; otherwise processes that are stopped may hold us up.
  bool has_robust_locks = false;

  /// "Connection refused (111)" of a negative answer.
  std::string describe(int64_t answer) const;
};

/// Opened once, and never closed: providers leave threads and handlers behind. From any thread.
Result<const Library*> library();

}  // namespace braid::fabric::ofi
